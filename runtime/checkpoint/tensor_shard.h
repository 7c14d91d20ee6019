#pragma once

// TensorShard describes a rank's part of one tensor for saving and loading.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/checkpoint/placement.h"
#include "runtime/checkpoint/tensor_source.h"
#include "runtime/checkpoint_format/regions.h"

namespace ds::checkpoint {

// Ranks that hold the same elements of a tensor are its replicas. Saving splits the elements among
// the replicas, so that none is written twice. Loading fills every replica.
struct Replica {
  int index = 0;  // number of this rank among the replicas, from 0
  int count = 1;  // equal on all replicas
};

// This rank's elements [flat_start, flat_start + source->count()) of a tensor, or of boxes of it,
// flattened in row-major order. Saving reads the source, and loading writes it.
//
// Names follow the Hugging Face weights: `<parameter>` (the fp32 master weight if there is one),
// and `<parameter>/<state>` for optimizer state (`exp_avg`, `momentum_buffer`).
struct TensorShard {
  std::string name;
  Placement placement;
  std::int64_t flat_start = 0;  // within the placement's boxes, if it has any
  std::shared_ptr<TensorSource> source;
  Replica replica = {};
};

// Returns the format's name of a dtype ("float32"); "" if the format does not have it.
std::string_view DtypeName(at::ScalarType type);
// Returns the dtype that the format calls `name`; nullopt if there is none.
std::optional<at::ScalarType> FindDtype(std::string_view name);

// Returns the region of the elements that this rank holds.
Region RegionOf(const TensorShard& shard);

// Fails unless the dtype, replica and region of the shard are valid. The message names the tensor.
Status CheckShard(const TensorShard& shard);

}  // namespace ds::checkpoint
