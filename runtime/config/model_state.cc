#include "runtime/config/model_state.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace ds::config {
namespace {

std::int64_t Share(std::int64_t bytes, bool sharded, std::int64_t shard_ranks) {
  return sharded ? (bytes + shard_ranks - 1) / shard_ranks : bytes;
}

}  // namespace

std::int64_t Width(DataType type) { return type == DataType::kFp32 ? 4 : 2; }

Sharding ShardingOfStage(int stage, std::int64_t shard_ranks) {
  DS_CHECK(stage >= 0 && stage <= 3);
  if (shard_ranks == 1) return {};
  return {.optimizer = stage >= 1, .gradients = stage >= 2, .parameters = stage >= 3};
}

Sharding ShardingOf(const ZeroConfig& zero, std::int64_t shard_ranks) {
  const bool keeps_elsewhere = zero.offload_optimizer.device != OffloadDevice::kNone ||
                               zero.offload_param.device != OffloadDevice::kNone ||
                               (zero.stage == 3 && zero.quantized_frozen_weights);
  return ShardingOfStage(zero.stage,
                         keeps_elsewhere ? std::max<std::int64_t>(2, shard_ranks) : shard_ranks);
}

std::int64_t StateTypes::StateBytes(std::int64_t values) const {
  if (!blockwise) return values * Width(state);
  return values +
         (values + kStateBlock - 1) / kStateBlock * static_cast<std::int64_t>(sizeof(float));
}

StateTypes ChooseStateTypes(const DsConfig& config) {
  const DataType training = config.training_dtype();
  const bool narrow_masters = (config.fp16.enabled && config.fp16.fp16_master_weights_and_grads) ||
                              (config.bf16.enabled && config.bf16.bf16_master_weights_and_grads);
  const bool narrow_state = (config.bf16.enabled && config.bf16.bf16_optimizer_states) ||
                            (narrow_masters && !config.optimizer.fp32_optimizer_states);
  return {.parameter = training,
          .gradient = config.grad_accum_dtype.value_or(training),
          .master = narrow_masters ? training : DataType::kFp32,
          .state = narrow_state ? training : DataType::kFp32,
          .blockwise = config.optimizer.blockwise_states};
}

ModelStateBytes CountModelStateBytes(const ModelStateInputs& in) {
  const std::int64_t exact = in.trainable + in.frozen - in.rounded;
  const std::int64_t parameters = Width(in.types.parameter) * exact + in.rounded;
  const std::int64_t master =
      in.types.has_master_weights() ? Width(in.types.master) * in.trainable : 0;
  return {
      .parameters = Share(parameters, in.sharding.parameters, in.shard_ranks),
      .gradients =
          Share(Width(in.types.gradient) * in.trainable, in.sharding.gradients, in.shard_ranks),
      .optimizer_state = Share(in.types.StateBytes(in.optimizer_states * in.trainable - in.muon),
                               in.sharding.optimizer, in.shard_ranks),
      .master_weights = Share(master, in.sharding.optimizer, in.shard_ranks)};
}

}  // namespace ds::config
