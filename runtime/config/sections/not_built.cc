#include "runtime/config/sections/not_built.h"

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStage = "zero_optimization.stage";
constexpr std::string_view kOffloadOptimizer = "zero_optimization.offload_optimizer.device";

// A number above 1 where 1 is "off"; a key may also hold "auto".
bool IsAboveOne(const RuleContext& context, std::string_view key) {
  const Json value = context.values.Get(key);
  return value.is_number() && value > 1;
}

void AmpExcludesZero(RuleContext& context) {
  if (context.IsOn("amp.enabled") && ZeroStage(context.values) > 0) {
    context.Refuse("amp.enabled", "cannot be combined with ZeRO: use bf16 or fp16");
  }
}

void CurriculumNeedsItsKeys(RuleContext& context) {
  const std::string section = "curriculum_learning.";
  if (!context.IsOn(section + "enabled")) return;
  std::vector<std::string> needed = {"min_difficulty", "max_difficulty", "schedule_type"};
  const Json type = context.values.Get(section + "schedule_type");
  if (type == "fixed_discrete") {
    needed.insert(needed.end(), {"schedule_config.difficulty", "schedule_config.max_step"});
  } else if (type == "fixed_linear" || type == "fixed_root") {
    needed.insert(needed.end(),
                  {"schedule_config.total_curriculum_step", "schedule_config.difficulty_step"});
    if (type == "fixed_root") needed.emplace_back("schedule_config.root_degree");
  }
  for (const std::string& name : needed) {
    const bool is_known =
        context.values.IsGiven(section + name) || context.values.IsBroken(section + name);
    if (!is_known) context.Refuse(section + name, "is missing: curriculum_learning needs it");
  }
}

void CompileOffloadsOneThing(RuleContext& context) {
  const bool host_optimizer = context.values.Get(kOffloadOptimizer) != "none";
  const bool states = context.IsOn("compile.offload_opt_states");
  const bool parameters = context.IsOn("compile.offload_parameters");
  if (states && host_optimizer) {
    context.Refuse("compile.offload_opt_states",
                   "cannot be combined with zero_optimization.offload_optimizer");
  }
  if (context.IsOn("compile.offload_activation") && (states || parameters || host_optimizer)) {
    context.Refuse("compile.offload_activation", "cannot be combined with any other offload");
  }
  if (parameters && states) {
    context.Refuse("compile.offload_parameters",
                   "cannot be combined with compile.offload_opt_states");
  }
}

void PipelineExcludesShardedGradients(RuleContext& context) {
  if (IsAboveOne(context, "pipeline.stages") && ZeroStage(context.values) >= 2) {
    context.Refuse("pipeline.stages",
                   "above 1 cannot be combined with zero_optimization.stage 2 or 3");
  }
}

void ExpertParallelismAgrees(RuleContext& context) {
  const std::string section = "expert_parallel.";
  if (!context.IsOn(section + "enabled")) return;
  const Json groups = context.values.Get(section + "num_expert_groups");
  const Json limited = context.values.Get(section + "num_limited_groups");
  if (groups.is_number() && limited.is_number() && limited > groups) {
    context.Refuse(section + "num_limited_groups",
                   "must not be above num_expert_groups, " + groups.dump());
  }
  if (!context.values.Get(section + "load_balance_coeff").is_null()) {
    context.Refuse(section + "load_balance_coeff", "must be null");
  }
  if (ZeroStage(context.values) != 3) return;
  const std::string size = section + "expert_tensor_parallel_size";
  for (const std::string_view key : {"sequence_parallel_size", "zero_optimization.mics_shard_size",
                                     "zero_optimization.zero_hpz_partition_size",
                                     "zero_optimization.zero_quantized_gradients", size.c_str()}) {
    if (context.IsChanged(key)) {
      context.Refuse(key, "cannot be combined with expert_parallel under ZeRO stage 3");
    }
  }
}

void InferenceInjectsOneWay(RuleContext& context) {
  const bool injects_kernels = context.IsOn("inference.replace_with_kernel_inject");
  if (injects_kernels && !context.values.Get("inference.injection_policy").is_null()) {
    context.Refuse("inference.injection_policy",
                   "cannot be combined with inference.replace_with_kernel_inject");
  }
  if (context.IsOn("inference.enable_cuda_graph") &&
      IsAboveOne(context, "inference.tensor_parallel.tp_size")) {
    context.Refuse("inference.enable_cuda_graph", "cannot be combined with tensor parallelism");
  }
}

constexpr Rule kRules[] = {
    {"AmpExcludesZero", {"amp.enabled", kStage}, AmpExcludesZero},
    {"CurriculumNeedsItsKeys", {"curriculum_learning.enabled"}, CurriculumNeedsItsKeys},
    {"CompileOffloadsOneThing", {kOffloadOptimizer}, CompileOffloadsOneThing},
    {"PipelineExcludesShardedGradients",
     {"pipeline.stages", kStage},
     PipelineExcludesShardedGradients},
    {"ExpertParallelismAgrees", {kStage}, ExpertParallelismAgrees},
    {"InferenceInjectsOneWay", {}, InferenceInjectsOneWay},
};

}  // namespace

std::span<const Rule> NotBuiltRules() { return kRules; }

}  // namespace ds::config
