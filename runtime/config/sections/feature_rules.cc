#include "runtime/config/sections/feature_rules.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStage = "zero_optimization.stage";
constexpr std::string_view kOverlap = "zero_optimization.overlap_comm";
constexpr std::string_view kOptimizer = "optimizer.type";
constexpr std::string_view kOffloadOptimizer = "zero_optimization.offload_optimizer.device";
constexpr std::string_view kOffloadRatio = "zero_optimization.offload_optimizer.ratio";

std::int64_t Stage(const RuleContext& context) { return context.values.Get(kStage); }

bool IsOn(const RuleContext& context, std::string_view key) {
  return context.values.Get(key) == true;
}

// Given, and with a value other than the default.
bool IsChanged(const RuleContext& context, std::string_view key) {
  return context.values.IsGiven(key) && !IsDefault(*FindSetting(key), context.values.Get(key));
}

// A number above 1 where 1 is "off"; a key may also hold "auto".
bool IsAboveOne(const RuleContext& context, std::string_view key) {
  const Json value = context.values.Get(key);
  return value.is_number() && value > 1;
}

// Blames `key`, which begins the sentence.
void Refuse(RuleContext& context, std::string_view key, const std::string& message) {
  context.issues.Error(key, std::string(key) + " " + message, context.values.PositionOf(key));
}

bool IsOneBit(const Json& optimizer) {
  return optimizer == "OneBitAdam" || optimizer == "ZeroOneAdam" || optimizer == "OneBitLamb";
}

void OverlapFollowsTheStage(RuleContext& context) {
  if (!context.values.Get(kOverlap).is_null()) return;
  context.values.Derive(kOverlap, Stage(context) == 3, "derived from zero_optimization.stage");
}

void AmpExcludesZero(RuleContext& context) {
  if (IsOn(context, "amp.enabled") && Stage(context) > 0) {
    Refuse(context, "amp.enabled", "cannot be combined with ZeRO: use bf16 or fp16");
  }
}

void PartialOffloadNeedsStage3(RuleContext& context) {
  if (context.values.Get(kOffloadRatio) < 1.0 && Stage(context) != 3) {
    Refuse(context, kOffloadRatio, "below 1 needs zero_optimization.stage 3");
  }
}

// DeepSpeed keeps the state in host memory instead, without a word.
void NvmeOffloadNeedsStage3(RuleContext& context) {
  if (context.values.Get(kOffloadOptimizer) == "nvme" && Stage(context) != 3) {
    Refuse(context, kOffloadOptimizer, "\"nvme\" needs zero_optimization.stage 3");
  }
}

void LoadingBesideComputingNeedsStage3(RuleContext& context) {
  constexpr std::string_view kKey = "zero_optimization.pipeline_loading_checkpoint";
  if (IsOn(context, kKey) && Stage(context) != 3) {
    Refuse(context, kKey, "needs zero_optimization.stage 3");
  }
}

void ZeroPlusPlusNeedsStage3(RuleContext& context) {
  if (Stage(context) == 3) return;
  for (const std::string_view key :
       {"zero_optimization.zero_quantized_weights", "zero_optimization.zero_quantized_gradients",
        "zero_optimization.zero_quantized_nontrainable_weights",
        "zero_optimization.zero_hpz_partition_size"}) {
    if (!IsChanged(context, key)) continue;
    context.issues.Warning(key, std::string(key) + " has no effect below ZeRO stage 3",
                           context.values.PositionOf(key));
  }
}

// DeepSpeed looks in the optimizer of stages 1 and 2, and there only with offload_optimizer.
void UnusedParametersAreLookedForInStages1And2(RuleContext& context) {
  constexpr std::string_view kKey = "zero_optimization.ignore_unused_parameters";
  if (context.values.Get(kKey) == true || Stage(context) == 1 || Stage(context) == 2) return;
  context.issues.Warning(kKey, std::string(kKey) + " has no effect but at ZeRO stages 1 and 2",
                         context.values.PositionOf(kKey));
  context.values.Derive(kKey, true, "derived from zero_optimization.stage");
}

void SequentialGatherPrefetchesNothing(RuleContext& context) {
  if (!IsOn(context, "zero_optimization.stage3_allgather_sequential")) return;
  context.values.Derive("zero_optimization.stage3_prefetch_bucket_size", 1,
                        "derived from zero_optimization.stage3_allgather_sequential");
}

void ZenFlowNeedsHostOptimizer(RuleContext& context) {
  const std::string zenflow = "zero_optimization.zenflow.";
  const auto& entries = context.values.entries();
  const auto first = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first.starts_with(zenflow) && IsChanged(context, entry.first);
  });
  if (first == entries.end()) return;
  const std::string key = first->first;
  if (context.values.Get(kOffloadOptimizer) != "cpu") {
    Refuse(context, key, "needs zero_optimization.offload_optimizer.device \"cpu\"");
  }
  if (IsOn(context, zenflow + "offload") && !IsOn(context, kOverlap)) {
    Refuse(context, zenflow + "offload", "needs zero_optimization.overlap_comm");
  }
  const Json select = context.values.Get(zenflow + "select_interval");
  const Json update = context.values.Get(zenflow + "update_interval");
  if (select.is_number() && update.is_number() && select != 0 && select < update) {
    Refuse(context, zenflow + "select_interval",
           "must not be smaller than update_interval, " + update.dump());
  }
}

void OneBitOptimizersExcludeZero(RuleContext& context) {
  const Json optimizer = context.values.Get(kOptimizer);
  if (IsOneBit(optimizer) && Stage(context) > 0) {
    Refuse(context, kOptimizer,
           optimizer.dump() +
               " cannot be combined with ZeRO: its ranks hold "
               "whole momenta; set zero_optimization.stage to 0");
  }
}

void LambNeedsADynamicScale(RuleContext& context) {
  const Json optimizer = context.values.Get(kOptimizer);
  const bool is_lamb = optimizer == "Lamb" || optimizer == "OneBitLamb";
  if (is_lamb && IsOn(context, "fp16.enabled") && context.values.Get("fp16.loss_scale") != 0.0) {
    Refuse(context, "fp16.loss_scale", "must be 0, which is dynamic, with " + optimizer.dump());
  }
}

void CurriculumNeedsItsKeys(RuleContext& context) {
  const std::string section = "curriculum_learning.";
  if (!IsOn(context, section + "enabled")) return;
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
    if (!is_known) Refuse(context, section + name, "is missing: curriculum_learning needs it");
  }
}

void CompileOffloadsOneThing(RuleContext& context) {
  const bool host_optimizer = context.values.Get(kOffloadOptimizer) != "none";
  const bool states = IsOn(context, "compile.offload_opt_states");
  const bool parameters = IsOn(context, "compile.offload_parameters");
  if (states && host_optimizer) {
    Refuse(context, "compile.offload_opt_states",
           "cannot be combined with zero_optimization.offload_optimizer");
  }
  if (IsOn(context, "compile.offload_activation") && (states || parameters || host_optimizer)) {
    Refuse(context, "compile.offload_activation", "cannot be combined with any other offload");
  }
  if (parameters && states) {
    Refuse(context, "compile.offload_parameters",
           "cannot be combined with compile.offload_opt_states");
  }
}

void PipelineExcludesShardedGradients(RuleContext& context) {
  if (IsAboveOne(context, "pipeline.stages") && Stage(context) >= 2) {
    Refuse(context, "pipeline.stages",
           "above 1 cannot be combined with zero_optimization.stage 2 or 3");
  }
}

void ExpertParallelismAgrees(RuleContext& context) {
  const std::string section = "expert_parallel.";
  if (!IsOn(context, section + "enabled")) return;
  const Json groups = context.values.Get(section + "num_expert_groups");
  const Json limited = context.values.Get(section + "num_limited_groups");
  if (groups.is_number() && limited.is_number() && limited > groups) {
    Refuse(context, section + "num_limited_groups",
           "must not be above num_expert_groups, " + groups.dump());
  }
  if (!context.values.Get(section + "load_balance_coeff").is_null()) {
    Refuse(context, section + "load_balance_coeff", "must be null");
  }
  if (Stage(context) != 3) return;
  const std::string size = section + "expert_tensor_parallel_size";
  for (const std::string_view key : {"sequence_parallel_size", "zero_optimization.mics_shard_size",
                                     "zero_optimization.zero_hpz_partition_size",
                                     "zero_optimization.zero_quantized_gradients", size.c_str()}) {
    if (IsChanged(context, key)) {
      Refuse(context, key, "cannot be combined with expert_parallel under ZeRO stage 3");
    }
  }
}

void InferenceInjectsOneWay(RuleContext& context) {
  const bool injects_kernels = IsOn(context, "inference.replace_with_kernel_inject");
  if (injects_kernels && !context.values.Get("inference.injection_policy").is_null()) {
    Refuse(context, "inference.injection_policy",
           "cannot be combined with inference.replace_with_kernel_inject");
  }
  if (IsOn(context, "inference.enable_cuda_graph") &&
      IsAboveOne(context, "inference.tensor_parallel.tp_size")) {
    Refuse(context, "inference.enable_cuda_graph", "cannot be combined with tensor parallelism");
  }
}

constexpr Rule kRules[] = {
    {"OverlapFollowsTheStage", {kOverlap, kStage}, OverlapFollowsTheStage},
    {"AmpExcludesZero", {"amp.enabled", kStage}, AmpExcludesZero},
    {"PartialOffloadNeedsStage3", {kOffloadRatio, kStage}, PartialOffloadNeedsStage3},
    {"NvmeOffloadNeedsStage3", {kOffloadOptimizer, kStage}, NvmeOffloadNeedsStage3},
    {"LoadingBesideComputingNeedsStage3", {kStage}, LoadingBesideComputingNeedsStage3},
    {"ZeroPlusPlusNeedsStage3", {kStage}, ZeroPlusPlusNeedsStage3},
    {"UnusedParametersAreLookedForInStages1And2",
     {"zero_optimization.ignore_unused_parameters", kStage},
     UnusedParametersAreLookedForInStages1And2},
    {"SequentialGatherPrefetchesNothing", {}, SequentialGatherPrefetchesNothing},
    {"ZenFlowNeedsHostOptimizer", {kOffloadOptimizer, kOverlap}, ZenFlowNeedsHostOptimizer},
    {"OneBitOptimizersExcludeZero", {kOptimizer, kStage}, OneBitOptimizersExcludeZero},
    {"LambNeedsADynamicScale",
     {kOptimizer, "fp16.enabled", "fp16.loss_scale"},
     LambNeedsADynamicScale},
    {"CurriculumNeedsItsKeys", {"curriculum_learning.enabled"}, CurriculumNeedsItsKeys},
    {"CompileOffloadsOneThing", {kOffloadOptimizer}, CompileOffloadsOneThing},
    {"PipelineExcludesShardedGradients",
     {"pipeline.stages", kStage},
     PipelineExcludesShardedGradients},
    {"ExpertParallelismAgrees", {kStage}, ExpertParallelismAgrees},
    {"InferenceInjectsOneWay", {}, InferenceInjectsOneWay},
};

}  // namespace

std::span<const Rule> FeatureRules() { return kRules; }

}  // namespace ds::config
