#include "runtime/config/sections/sections.h"

#include <string_view>

#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kStage = keys::kZeroOptimizationStage;
constexpr Key kOffloadOptimizer = keys::kZeroOptimizationOffloadOptimizerDevice;

// Returns true for a number above 1, where 1 means off; a key may also hold "auto".
bool IsAboveOne(const RuleContext& context, Key key) {
  const Json value = context.values.Get(key);
  return value.is_number() && value > 1;
}

void CheckAmpWithoutZero(RuleContext& context) {
  if (context.IsOn(keys::kAmpEnabled) && ZeroStage(context.values) > 0) {
    context.Refuse(keys::kAmpEnabled, "cannot be combined with ZeRO: use bf16 or fp16");
  }
}

void CheckCompileOffload(RuleContext& context) {
  const bool host_optimizer = context.values.Get(kOffloadOptimizer) != "none";
  const bool states = context.IsOn(keys::kCompileOffloadOptStates);
  const bool parameters = context.IsOn(keys::kCompileOffloadParameters);
  if (states && host_optimizer) {
    context.Refuse(keys::kCompileOffloadOptStates,
                   "cannot be combined with zero_optimization.offload_optimizer");
  }
  if (context.IsOn(keys::kCompileOffloadActivation) && (states || parameters || host_optimizer)) {
    context.Refuse(keys::kCompileOffloadActivation, "cannot be combined with any other offload");
  }
  if (parameters && states) {
    context.Refuse(keys::kCompileOffloadParameters,
                   "cannot be combined with compile.offload_opt_states");
  }
}

void CheckInferenceInjection(RuleContext& context) {
  const bool injects_kernels = context.IsOn(keys::kInferenceReplaceWithKernelInject);
  if (injects_kernels && !context.values.Get(keys::kInferenceInjectionPolicy).is_null()) {
    context.Refuse(keys::kInferenceInjectionPolicy,
                   "cannot be combined with inference.replace_with_kernel_inject");
  }
  if (context.IsOn(keys::kInferenceEnableCudaGraph) &&
      IsAboveOne(context, keys::kInferenceTensorParallelTpSize)) {
    context.Refuse(keys::kInferenceEnableCudaGraph, "cannot be combined with tensor parallelism");
  }
}

constexpr Rule kRules[] = {
    {"CheckAmpWithoutZero", {keys::kAmpEnabled, kStage}, CheckAmpWithoutZero},
    {"CheckCompileOffload", {kOffloadOptimizer}, CheckCompileOffload},
    {"CheckInferenceInjection", {}, CheckInferenceInjection},
};

}  // namespace

std::span<const Rule> NotBuiltRules() { return kRules; }

}  // namespace ds::config
