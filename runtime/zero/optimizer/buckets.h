#pragma once

// ForEachBucket, ForEachTrainableBucket: visit the buckets of a model, in model order.

#include <cstdint>

#include "runtime/zero/sharded_model.h"

namespace ds::zero {

// Calls visit(Bucket&).
template <typename Visit>
void ForEachBucket(const ShardedModel& model, Visit visit) {
  for (const auto& unit : model.units()) {
    for (const auto& bucket : unit->buckets()) visit(*bucket);
  }
}

// Calls visit(Bucket&, first). `first` is the ordinal of the bucket's first parameter among the
// trainable parameters of the model.
template <typename Visit>
void ForEachTrainableBucket(const ShardedModel& model, Visit visit) {
  std::int64_t first = 0;
  ForEachBucket(model, [&](Bucket& bucket) {
    if (!bucket.trainable()) return;
    visit(bucket, first);
    first += bucket.parameters().layout().size();
  });
}

}  // namespace ds::zero
