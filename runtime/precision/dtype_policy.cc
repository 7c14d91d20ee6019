#include "runtime/precision/dtype_policy.h"

namespace ds::precision {

c10::ScalarType ToScalarType(config::DataType type) {
  switch (type) {
    case config::DataType::kFp32:
      return c10::kFloat;
    case config::DataType::kBf16:
      return c10::kBFloat16;
    case config::DataType::kFp16:
      return c10::kHalf;
  }
  return c10::kFloat;
}

DtypePolicy MakeDtypePolicy(const config::DsConfig& config) {
  const config::DataType training = config.training_dtype();
  const bool narrow_masters = (config.fp16.enabled && config.fp16.fp16_master_weights_and_grads) ||
                              (config.bf16.enabled && config.bf16.bf16_master_weights_and_grads);
  const bool narrow_state = narrow_masters && (config.bf16.bf16_optimizer_states ||
                                               !config.optimizer.fp32_optimizer_states);
  return {.parameter = ToScalarType(training),
          .gradient = ToScalarType(config.grad_accum_dtype.value_or(training)),
          .reduction = ToScalarType(config.communication_data_type.value_or(training)),
          .master = narrow_masters ? ToScalarType(training) : c10::kFloat,
          .state = narrow_state ? ToScalarType(training) : c10::kFloat,
          .autocast = config.torch_autocast.enabled
                          ? std::optional(ToScalarType(config.torch_autocast.dtype))
                          : std::nullopt};
}

}  // namespace ds::precision
