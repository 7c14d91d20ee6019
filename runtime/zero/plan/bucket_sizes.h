#pragma once

// MeasureBuckets: the bytes of a rank's buckets, and where they rest while nobody uses them, as
// Bucket, OptimizerShard and Store find them. Pure.

#include <vector>

#include "runtime/zero/plan/bucket_bytes.h"
#include "runtime/zero/plan/step_memory.h"

namespace ds::zero {

struct BucketSizes {
  BucketBytes bytes;
  bool trained = false;
  // The rest tells what is elsewhere while nobody uses it.
  Rest own_rest = Rest::kHere;       // the reduced shard's
  std::int64_t fetched_bytes = 0;    // of this rank's shard of the parameters
  std::int64_t brought_masters = 0;  // to the GPU, for the update
  std::int64_t brought_state = 0;
};

struct MeasuredModel {
  std::vector<std::vector<BucketSizes>> units;
  HeldMemory here;  // model state that is always there
  AwayMemory away;
};

MeasuredModel MeasureBuckets(const StepMemoryInput& input);

}  // namespace ds::zero
