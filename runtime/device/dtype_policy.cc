#include "runtime/device/dtype_policy.h"

#include "runtime/config/model_state.h"

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
  const config::StateTypes types = config::ChooseStateTypes(config);
  return {.parameter = ToScalarType(types.parameter),
          .gradient = ToScalarType(types.gradient),
          .reduction = ToScalarType(config.communication_data_type.value_or(types.parameter)),
          .master = ToScalarType(types.master),
          .state = ToScalarType(types.state),
          .autocast = config.torch_autocast.enabled
                          ? std::optional(ToScalarType(config.torch_autocast.dtype))
                          : std::nullopt};
}

}  // namespace ds::precision
