#include "runtime/zero/model_state_bytes.h"

namespace ds::zero {
namespace {

std::int64_t Share(std::int64_t bytes, bool sharded, int world_size) {
  return sharded ? (bytes + world_size - 1) / world_size : bytes;
}

std::int64_t Width(c10::ScalarType type) {
  return static_cast<std::int64_t>(c10::elementSize(type));
}

}  // namespace

ModelStateBytes ExpectedModelStateBytes(const ModelStateInputs& in) {
  const std::int64_t all = in.trainable + in.frozen;
  const std::int64_t master =
      in.dtypes.has_master_weights() ? Width(in.dtypes.master) * in.trainable : 0;
  return {
      .parameters = Share(Width(in.dtypes.parameter) * all, in.sharding.parameters, in.world_size),
      .gradients =
          Share(Width(in.dtypes.gradient) * in.trainable, in.sharding.gradients, in.world_size),
      .optimizer_state =
          Share((in.optimizer_states * in.trainable - in.muon) * Width(in.dtypes.state),
                in.sharding.optimizer, in.world_size),
      .master_weights = Share(master, in.sharding.optimizer, in.world_size)};
}

}  // namespace ds::zero
