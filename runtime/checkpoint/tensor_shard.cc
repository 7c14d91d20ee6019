#include "runtime/checkpoint/tensor_shard.h"

#include <fmt/format.h>

namespace ds::checkpoint {
namespace {

Status CheckData(const TensorShard& shard) {
  const at::ScalarType dtype = shard.source->dtype();
  if (DtypeName(dtype).empty()) {
    return UnimplementedError(fmt::format("checkpoints have no dtype {}", c10::toString(dtype)));
  }
  const Replica replica = shard.replica;
  if (replica.index < 0 || replica.index >= replica.count) {
    return InternalError(fmt::format("replica {} of {}", replica.index, replica.count));
  }
  return OkStatus();
}

}  // namespace

std::string_view DtypeName(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return "";
  }
}

std::optional<at::ScalarType> FindDtype(std::string_view name) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong,
                                    at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    if (DtypeName(type) == name) return type;
  }
  return std::nullopt;
}

Region RegionOf(const TensorShard& shard) {
  return {shard.placement.boxes, shard.flat_start, shard.source->count()};
}

Status CheckShard(const TensorShard& shard) {
  Status status = CheckData(shard);
  if (status.ok()) status = CheckRegion(shard.placement.global_shape, RegionOf(shard));
  return status.WithContext(fmt::format("tensor '{}'", shard.name));
}

}  // namespace ds::checkpoint
