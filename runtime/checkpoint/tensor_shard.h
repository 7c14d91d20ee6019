#pragma once

// Checks and helpers that the writer and the reader of TensorShards (stateful.h) share.

#include <c10/core/ScalarType.h>

#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/regions.h"
#include "runtime/checkpoint/stateful.h"

namespace ds::checkpoint {

// The format's name of a dtype ("float32"); "" for one that the format does not have.
std::string_view DtypeName(at::ScalarType type);

// The elements that this rank holds.
Region RegionOf(const TensorShard& shard);

// Fails, naming the tensor, unless the shard is what stateful.h asks for.
Status CheckShard(const TensorShard& shard);

// Asks all parts for their shards; the first that is not right is an error.
StatusOr<std::vector<TensorShard>> CollectShards(std::span<Stateful* const> parts);

}  // namespace ds::checkpoint
