#include "runtime/engine/make_mesh.h"

#include <string>

namespace ds::engine {

StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted, int zero_stage,
                                  int world_size) {
  topology::Degrees degrees;
  (zero_stage == 0 ? degrees.replicate : degrees.shard) = world_size;
  if (wanted) degrees = *wanted;
  DS_RETURN_IF_ERROR(CheckBuilt(degrees));
  if (zero_stage == 0 && degrees.shard > 1) {
    return InvalidArgumentError("ZeRO stage 0 cuts nothing: the mesh's shard must be 1, not " +
                                std::to_string(degrees.shard) + "; replicate has the ranks");
  }
  if (zero_stage > 0 && degrees.replicate > 1) {
    return InvalidArgumentError("ZeRO stage " + std::to_string(zero_stage) +
                                " cuts the model state among all ranks: the mesh's replicate must "
                                "be 1, not " +
                                std::to_string(degrees.replicate) + "; shard has the ranks");
  }
  return topology::Mesh::Create(degrees, world_size);
}

}  // namespace ds::engine
