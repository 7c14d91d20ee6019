#include "runtime/config/sections/zenflow_section.h"

#include <string>
#include <string_view>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/parallel_section.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSection = "zero_optimization.zenflow.";
constexpr Key kDevice = keys::kZeroOptimizationOffloadOptimizerDevice;
constexpr Key kOverlapComm = keys::kZeroOptimizationOverlapComm;
constexpr Key kStrategy = keys::kZeroOptimizationZenflowSelectStrategy;
constexpr Key kSelect = keys::kZeroOptimizationZenflowSelectInterval;
constexpr Key kComputeCores = keys::kZeroOptimizationZenflowPtReservedCoresPerc;
constexpr Key kUpdate = keys::kZeroOptimizationZenflowUpdateInterval;

// Returns the first key of the section that the file gives on purpose; null if there is none.
// Without an optimizer on the host, a section of defaults requests nothing, as every key may be
// written at its default.
const std::string* FindZenFlow(const Values& values) {
  const bool is_ready = values.Get(kDevice) == "cpu";
  for (const auto& [key, entry] : values.entries()) {
    if (!key.starts_with(kSection) || !entry.given) continue;
    if (is_ready || !IsDefault(*entry.setting, entry.value)) return &key;
  }
  return nullptr;
}

void CheckZenFlowOffload(RuleContext& context) {
  const std::string* const key = FindZenFlow(context.values);
  if (key == nullptr) return;
  if (context.values.Get(kDevice) != "cpu") {
    context.Refuse(Key(*key), "needs zero_optimization.offload_optimizer.device \"cpu\"");
  }
  const Json type = context.values.Get(keys::kOptimizerType);
  if (type != "Adam" && type != "AdamW") {
    context.Refuse(keys::kOptimizerType,
                   "must be Adam or AdamW: ZenFlow keeps their moments for its columns");
  }
  if (context.IsOn(keys::kZeroOptimizationOffloadOptimizerSuperOffload)) {
    context.Refuse(keys::kZeroOptimizationOffloadOptimizerSuperOffload,
                   "updates all parameters in the backward pass, and ZenFlow updates the important "
                   "columns after it: leave one of them out");
  }
  if (context.IsOn(keys::kZeroOptimizationZenflowOverlapStep) &&
      context.values.Get(keys::kZeroOptimizationOffloadOptimizerRatio) != 1.0) {
    context.Refuse(
        keys::kZeroOptimizationOffloadOptimizerRatio,
        "must be 1 with zenflow.overlap_step, which updates all but the important columns "
        "on the host");
  }
  if (context.values.Get(keys::kZeroOptimizationOffloadParamDevice) == "nvme") {
    context.Refuse(keys::kZeroOptimizationOffloadParamDevice,
                   "\"nvme\" has no columns at hand, which ZenFlow updates in every step");
  }
  if (context.IsOn(keys::kZeroOptimizationZenflowOffload) && !context.IsOn(kOverlapComm)) {
    context.Refuse(keys::kZeroOptimizationZenflowOffload, "needs zero_optimization.overlap_comm");
  }
}

// Selected columns are full columns of a parameter, so every rank needs all of its gradients.
void CheckZenFlowRanks(RuleContext& context) {
  const std::string* const key = FindZenFlow(context.values);
  const ParallelConfig parallel = ReadParallel(context.values);
  const bool is_split = parallel.pipeline > 1 || parallel.tensor > 1 || parallel.sequence > 1;
  if (key == nullptr || (!is_split && parallel.expert == 1)) return;
  context.Refuse(Key(*key),
                 "is built for data-parallel ranks: leave zero_optimization.zenflow out, or "
                 "pipeline stages and tensor, sequence and expert ranks");
}

void DisableDefaultZenFlow(RuleContext& context) {
  if (FindZenFlow(context.values) != nullptr) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!key.starts_with(kSection) || !entry.given) continue;
    context.issues.Warning(key,
                           "zero_optimization.zenflow stays off without "
                           "zero_optimization.offload_optimizer.device \"cpu\": set it, or leave "
                           "the section out",
                           entry.position);
    return;
  }
}

void CheckZenFlowSelection(RuleContext& context) {
  const Values& values = context.values;
  if (FindZenFlow(values) == nullptr) return;
  const Json ratio = values.Get(keys::kZeroOptimizationZenflowTopkRatio);
  if (ratio <= 0.0 || ratio >= 1.0) {
    context.Refuse(keys::kZeroOptimizationZenflowTopkRatio, "must be above 0 and below 1");
  }
  const bool is_number = values.Get(kSelect).is_number();
  if (values.Get(kStrategy) == "auto" && is_number) {
    context.Refuse(kSelect,
                   "has no effect with select_strategy \"auto\", which is every epoch: "
                   "leave it out, or set select_strategy");
  }
  if (values.Get(kStrategy) != "auto" && !is_number) {
    context.Refuse(kSelect,
                   "must be a number with select_strategy " + values.Get(kStrategy).dump());
  }
}

void ReportIdleZenFlowKeys(RuleContext& context) {
  if (FindZenFlow(context.values) == nullptr) return;
  const auto warn = [&context](Key key, const std::string& because) {
    if (!context.IsChanged(key)) return;
    context.issues.Warning(key, std::string(key) + " has no effect with " + because,
                           context.values.PositionOf(key));
  };
  if (context.values.Get(kUpdate).is_number()) {
    warn(keys::kZeroOptimizationZenflowAutoRatio, "an update_interval that is a number");
  }
  if (context.values.Get(kStrategy) == "step") {
    warn(keys::kZeroOptimizationZenflowStepsPerEpoch, "select_strategy \"step\"");
  }
}

// Not checked for epochs, which are at least as long as any sensible interval.
void CheckZenFlowIntervals(RuleContext& context) {
  const Json select = context.values.Get(kSelect), update = context.values.Get(kUpdate);
  if (!select.is_number() || !update.is_number() || select == 0 || select >= update) return;
  context.Refuse(kSelect, "must not be smaller than update_interval, " + update.dump());
}

constexpr Rule kRules[] = {
    {"CheckZenFlowOffload", {kDevice, kOverlapComm, keys::kOptimizerType}, CheckZenFlowOffload},
    {"CheckZenFlowRanks",
     {keys::kPipelineStages, keys::kTensorParallelAutotpSize, keys::kSequenceParallelSize,
      keys::kExpertParallelAutoepSize},
     CheckZenFlowRanks},
    {"DisableDefaultZenFlow", {kDevice}, DisableDefaultZenFlow},
    {"CheckZenFlowSelection", {kStrategy, kSelect}, CheckZenFlowSelection},
    {"ReportIdleZenFlowKeys", {kUpdate, kStrategy}, ReportIdleZenFlowKeys},
    {"CheckZenFlowIntervals", {kSelect, kUpdate}, CheckZenFlowIntervals},
};

}  // namespace

std::span<const Rule> ZenFlowRules() { return kRules; }

bool ZenFlowOmitsKey(const Values& values, Key key) {
  if (key == kComputeCores && !IsChosen(values, key)) return true;
  return std::string_view(key).starts_with(kSection) && FindZenFlow(values) == nullptr;
}

void FillZenFlow(const Values& values, DsConfig* config) {
  if (FindZenFlow(values) == nullptr) return;
  const Json select = values.Get(kSelect), update = values.Get(kUpdate);
  const Json epoch = values.Get(keys::kZeroOptimizationZenflowStepsPerEpoch);
  ZenFlowConfig zenflow{
      .topk_ratio = values.Get(keys::kZeroOptimizationZenflowTopkRatio),
      .select_interval = select.is_number() ? select.get<std::int64_t>() : 1,
      .counts_epochs = values.Get(kStrategy) != "step",
      .auto_ratio = values.Get(keys::kZeroOptimizationZenflowAutoRatio),
      .full_warm_up_rounds = values.Get(keys::kZeroOptimizationZenflowFullWarmUpRounds),
      .overlap_step = values.Get(keys::kZeroOptimizationZenflowOverlapStep),
      .offload = values.Get(keys::kZeroOptimizationZenflowOffload)};
  if (IsChosen(values, kComputeCores))
    zenflow.compute_cores = values.Get(kComputeCores).get<double>();
  if (epoch.is_number()) zenflow.steps_per_epoch = epoch.get<std::int64_t>();
  if (update.is_number()) zenflow.update_interval = update.get<std::int64_t>();
  config->zero_optimization.zenflow = zenflow;
}

}  // namespace ds::config
