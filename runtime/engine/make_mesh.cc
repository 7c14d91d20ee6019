#include "runtime/engine/make_mesh.h"

#include <string>

namespace ds::engine {

StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted,
                                  const config::ZeroConfig& zero, int world_size) {
  topology::Degrees degrees;
  degrees.shard = zero.stage == 0 ? 1 : zero.mics_shard_size.value_or(world_size);
  degrees.replicate = world_size / degrees.shard;
  if (wanted) degrees = *wanted;
  if (zero.stage > 0 && zero.mics_shard_size && degrees.shard != *zero.mics_shard_size) {
    return InvalidArgumentError("zero_optimization.mics_shard_size is " +
                                std::to_string(*zero.mics_shard_size) + ", and the mesh's shard " +
                                std::to_string(degrees.shard));
  }
  DS_RETURN_IF_ERROR(CheckBuilt(degrees));
  if (zero.stage == 0 && degrees.shard > 1) {
    return InvalidArgumentError("ZeRO stage 0 cuts nothing: the mesh's shard must be 1, not " +
                                std::to_string(degrees.shard) + "; replicate has the ranks");
  }
  return topology::Mesh::Create(degrees, world_size);
}

}  // namespace ds::engine
