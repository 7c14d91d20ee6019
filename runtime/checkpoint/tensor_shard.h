#pragma once

// TensorShard: what a rank holds of one tensor, as a checkpoint writes and reads it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/checkpoint/placement.h"
#include "runtime/checkpoint/tensor_source.h"
#include "runtime/checkpoint_format/regions.h"

namespace ds::checkpoint {

// Ranks that hold the same elements of a tensor are its replicas. Saving splits the elements among
// them, so that nothing is written twice; loading fills every replica.
struct Replica {
  int index = 0;  // this rank's number among the replicas, from 0
  int count = 1;  // the same on all of them
};

// Elements [flat_start, flat_start + source->count()) of a tensor or of boxes of it, flattened in
// row-major order: what this rank holds of it. Saving reads the source, loading writes it.
//
// Names are those of the Hugging Face weights: `<parameter>` (the fp32 master weight where there is
// one), and `<parameter>/<state>` for what the optimizer keeps (`exp_avg`, `momentum_buffer`).
struct TensorShard {
  std::string name;
  Placement placement;
  std::int64_t flat_start = 0;  // in the placement's boxes, if it has any
  std::shared_ptr<TensorSource> source;
  Replica replica = {};
};

// The format's name of a dtype ("float32"); "" for one that the format does not have.
std::string_view DtypeName(at::ScalarType type);

// The elements that this rank holds.
Region RegionOf(const TensorShard& shard);

// Fails, naming the tensor, unless the shard is what is said above.
Status CheckShard(const TensorShard& shard);

}  // namespace ds::checkpoint
