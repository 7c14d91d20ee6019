#include "runtime/precision/dtype_policy.h"

#include <optional>
#include <string>

namespace ds::precision {
namespace {

StatusOr<c10::ScalarType> ToScalarType(config::DataType type, std::string_view key) {
  switch (type) {
    case config::DataType::kFp32:
      return c10::kFloat;
    case config::DataType::kBf16:
      return c10::kBFloat16;
    case config::DataType::kFp16:
      break;
  }
  return UnimplementedError(std::string(key) + ": fp16 is not supported; use fp32 or bf16");
}

}  // namespace

StatusOr<DtypePolicy> MakeDtypePolicy(const config::DsConfig& config) {
  DtypePolicy policy;
  DS_ASSIGN_OR_RETURN(policy.parameter, ToScalarType(config.training_dtype(), "fp16.enabled"));
  const auto training = config.training_dtype();
  DS_ASSIGN_OR_RETURN(policy.gradient, ToScalarType(config.grad_accum_dtype.value_or(training),
                                                    "data_types.grad_accum_dtype"));
  DS_ASSIGN_OR_RETURN(
      policy.reduction,
      ToScalarType(config.communication_data_type.value_or(training), "communication_data_type"));
  return policy;
}

}  // namespace ds::precision
