#include "runtime/precision/dtype_policy.h"

namespace ds::precision {
namespace {

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

}  // namespace

DtypePolicy MakeDtypePolicy(const config::DsConfig& config) {
  const config::DataType training = config.training_dtype();
  return {.parameter = ToScalarType(training),
          .gradient = ToScalarType(config.grad_accum_dtype.value_or(training)),
          .reduction = ToScalarType(config.communication_data_type.value_or(training))};
}

}  // namespace ds::precision
