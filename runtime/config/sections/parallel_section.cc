#include "runtime/config/sections/parallel_section.h"

#include <algorithm>

#include "runtime/base/divisors.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/optimizer_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kPipeline = keys::kPipelineStages;
constexpr Key kPartition = keys::kPipelinePartition;
constexpr Key kSequence = keys::kSequenceParallelSize;
constexpr Key kTensor = keys::kTensorParallelAutotpSize;
constexpr Key kExpert = keys::kExpertParallelAutoepSize;
constexpr Key kOptimizerType = keys::kOptimizerType;

// No job has more ranks; products of three degrees do not overflow.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// Returns the degree; 0 and "auto" mean off.
int DegreeOf(const Values& values, Key key) {
  const Json value = values.Get(key);
  if (!value.is_number()) return 1;
  return static_cast<int>(std::clamp<std::int64_t>(value, 1, kMostRanks));
}

// Returns the first key with a degree above 1.
Key FirstSplitDegree(const Values& values) {
  for (const Key key : {kPipeline, kTensor, kSequence}) {
    if (DegreeOf(values, key) > 1) return key;
  }
  return kSequence;
}

void CheckDegrees(RuleContext& context) {
  if (DataRanks(context)) return;
  const ParallelConfig parallel = ReadParallel(context.values);
  context.Refuse(FirstSplitDegree(context.values),
                 "does not fit: pipeline.stages x tensor_parallel.autotp_size x "
                 "sequence_parallel_size, " +
                     std::to_string(parallel.ranks_of_a_sample()) +
                     ", must divide the number of ranks, " +
                     std::to_string(context.facts.world_size));
}

// The `moe` section of guides has another name for the number of ranks that share the experts.
void DeriveExpertDegree(RuleContext& context) {
  Values& values = context.values;
  if (!context.IsOn(keys::kMoeEnabled) || !context.IsChanged(keys::kMoeEpSize)) return;
  const Json ranks = values.Get(keys::kMoeEpSize);
  if (values.IsGiven(kExpert) && values.Get(kExpert) != ranks) {
    context.Refuse(keys::kMoeEpSize, "is " + ranks.dump() + ", and " + std::string(kExpert) +
                                         " is " + values.Get(kExpert).dump() +
                                         ": they are two names of the same, so give one");
    return;
  }
  const std::string origin = "derived from " + std::string(keys::kMoeEpSize);
  values.Derive(kExpert, ranks, origin);
  values.Derive(keys::kExpertParallelEnabled, true, origin);
}

void CheckExpertDegree(RuleContext& context) {
  const int experts = ReadParallel(context.values).expert;
  auto ranks = StateRanks(context);
  const std::int64_t mics = context.values.Get(keys::kZeroOptimizationMicsShardSize);
  if (ranks && mics > 0 && context.values.Get(keys::kZeroOptimizationStage) > 0) ranks = mics;
  if (!ranks || *ranks % experts == 0) return;
  context.Refuse(kExpert, "must divide the number of ranks that share the state, " +
                              std::to_string(*ranks) + ", and is " + std::to_string(experts) +
                              ": take " + NameNearestDivisors(*ranks, experts));
}

// DeepSpeed also rejects sequence ranks and MiCS, which work with experts here.
void CheckExpertFeatures(RuleContext& context) {
  if (!context.IsOn(keys::kExpertParallelEnabled)) return;
  const Json groups = context.values.Get(keys::kExpertParallelNumExpertGroups);
  const Json limited = context.values.Get(keys::kExpertParallelNumLimitedGroups);
  if (groups.is_number() && limited.is_number() && limited > groups) {
    context.Refuse(keys::kExpertParallelNumLimitedGroups,
                   "must not be above num_expert_groups, " + groups.dump());
  }
  if (!context.values.Get(keys::kExpertParallelLoadBalanceCoeff).is_null()) {
    context.Refuse(keys::kExpertParallelLoadBalanceCoeff, "must be null");
  }
  const Key width = keys::kExpertParallelExpertTensorParallelSize;
  const int tensor = DegreeOf(context.values, kTensor);
  if (context.IsChanged(width) && context.values.Get(width) != tensor) {
    context.Refuse(width,
                   "must be tensor_parallel.autotp_size, " + std::to_string(tensor) +
                       ", or 1: the ranks that have matrices between them have experts, too");
  }
  if (context.values.Get(keys::kZeroOptimizationStage) != 3) return;
  for (const Key key : {keys::kZeroOptimizationZeroHpzPartitionSize,
                        keys::kZeroOptimizationZeroQuantizedGradients}) {
    if (context.IsChanged(key)) {
      context.Refuse(key, "cannot be combined with expert_parallel under ZeRO stage 3");
    }
  }
}

void RefuseOptimizersOfMatrices(RuleContext& context, const std::string& with,
                                const std::string& why) {
  const OptimizerType* const type = OptimizerTypeOf(context.values);
  if (type == nullptr || type->is_elementwise) return;
  context.Refuse(kOptimizerType, std::string(type->name) + with + ": " + why + "; choose " +
                                     ListOptimizers(&OptimizerType::is_elementwise));
}

// Rejects features that depend on more than single elements, and files of a rank that may later
// hold another part of the model.
void CheckTensorFeatures(RuleContext& context) {
  const Values& values = context.values;
  if (DegreeOf(values, kTensor) == 1) return;
  for (const Key other :
       {keys::kTensorParallelPartitionConfigTpSize, keys::kTensorParallelTensorParallelTpSize}) {
    if (!context.IsChanged(other) || values.Get(other) == values.Get(kTensor)) continue;
    context.Refuse(other, "must be " + std::string(kTensor) + ", " +
                              std::to_string(DegreeOf(values, kTensor)) + ", or left out");
  }
  const std::string with = " is not built with " + std::string(kTensor) + " above 1";
  RefuseOptimizersOfMatrices(context, with, "it looks at more than single elements");
  for (const Key key :
       {keys::kSparseGradients, keys::kZeroOptimizationZeroHpzPartitionSize,
        keys::kZeroOptimizationZeroQuantizedWeights, keys::kZeroOptimizationZeroQuantizedGradients,
        keys::kZeroOptimizationZeroQuantizedNontrainableWeights}) {
    if (context.IsChanged(key)) context.Refuse(key, with.substr(1));
  }
  for (const auto& [path, entry] : values.entries()) {
    const Key key(path);
    // Only the entry of a list element knows its setting; the entry of a broken key has none.
    const bool is_changed = entry.given && !entry.broken && !IsDefault(*entry.setting, entry.value);
    if (is_changed && Key("tensor_parallel").Has(key) &&
        entry.setting->state == SettingState::kRefused) {
      context.Refuse(key, "is not supported yet: " + std::string(entry.setting->reason));
    }
  }
  for (const Key key :
       {keys::kZeroOptimizationOffloadOptimizerDevice, keys::kZeroOptimizationOffloadParamDevice}) {
    if (values.Get(key) == "nvme") context.Refuse(key, "nvme" + with);
  }
}

void CheckPipelineFeatures(RuleContext& context) {
  const Values& values = context.values;
  if (DegreeOf(values, kPipeline) == 1) return;
  const std::string with = " is not built with " + std::string(kPipeline) + " above 1";
  RefuseOptimizersOfMatrices(context, with, "it looks at more than a stage has");
  for (const Key key :
       {keys::kSparseGradients, keys::kManagedGradientAccumulation,
        keys::kZeroOptimizationMicsShardSize, keys::kZeroOptimizationZeroHpzPartitionSize,
        keys::kZeroOptimizationZeroQuantizedWeights, keys::kZeroOptimizationZeroQuantizedGradients,
        keys::kZeroOptimizationZeroQuantizedNontrainableWeights}) {
    if (context.IsChanged(key)) context.Refuse(key, with.substr(1));
  }
  if (context.IsOn(keys::kZeroOptimizationOffloadOptimizerSuperOffload)) {
    context.Refuse(keys::kZeroOptimizationOffloadOptimizerSuperOffload,
                   with.substr(1) + ": stages have to agree on a step before a block is updated");
  }
}

// Rejects features that depend on the full model or have rank groups of their own.
void CheckExpertModelFeatures(RuleContext& context) {
  const Values& values = context.values;
  if (ReadParallel(values).expert == 1) return;
  const std::string with = " is not built with " + std::string(kExpert) + " above 1";
  RefuseOptimizersOfMatrices(context, with, "it needs the full model");
  if (context.IsChanged(keys::kZeroOptimizationZeroQuantizedWeights)) {
    context.Refuse(keys::kZeroOptimizationZeroQuantizedWeights, with.substr(1));
  }
  for (const Key key :
       {keys::kZeroOptimizationOffloadOptimizerDevice, keys::kZeroOptimizationOffloadParamDevice}) {
    if (values.Get(key) == "nvme") context.Refuse(key, "nvme" + with);
  }
}

void CheckPartitionMethod(RuleContext& context) {
  const Json method = context.values.Get(kPartition);
  for (const char* known : {"best", "uniform", "parameters", "profile", "memory"}) {
    if (method == known) return;
  }
  if (method.is_string() && method.get<std::string>().starts_with("type:")) return;
  context.Refuse(kPartition, "is " + method.dump() +
                                 ": write uniform, parameters, best, profile (by work), memory or "
                                 "type:REGEX, which counts the layers of matching classes");
}

constexpr Rule kRules[] = {
    {"DeriveExpertDegree", {keys::kMoeEpSize, kExpert}, DeriveExpertDegree},
    {"CheckDegrees", {kPipeline, kSequence, kTensor}, CheckDegrees},
    {"CheckExpertDegree", {kExpert, kPipeline, kSequence, kTensor}, CheckExpertDegree},
    {"CheckExpertFeatures", {keys::kZeroOptimizationStage}, CheckExpertFeatures},
    {"CheckExpertModelFeatures", {kExpert, kOptimizerType}, CheckExpertModelFeatures},
    {"CheckTensorFeatures", {kTensor, kOptimizerType}, CheckTensorFeatures},
    {"CheckPipelineFeatures", {kPipeline, kOptimizerType}, CheckPipelineFeatures},
    {"CheckPartitionMethod", {kPartition}, CheckPartitionMethod}};

}  // namespace

std::span<const Rule> ParallelRules() { return kRules; }

ParallelConfig ReadParallel(const Values& values) {
  const bool experts = values.Get(keys::kExpertParallelEnabled) == true;
  return {.pipeline = DegreeOf(values, kPipeline),
          .sequence = DegreeOf(values, kSequence),
          .tensor = DegreeOf(values, kTensor),
          .expert = experts ? DegreeOf(values, kExpert) : 1,
          .data_before_expert = values.Get(keys::kUseDataBeforeExpertParallelism),
          .tensor_sums_overlap = values.Get(keys::kTensorParallelTpOverlapComm)};
}

void FillParallel(const Values& values, DsConfig* config) {
  config->parallel = ReadParallel(values);
  config->pipeline = {
      .partition = values.Get(kPartition),
      .activation_checkpoint_interval = values.Get(keys::kPipelineActivationCheckpointInterval),
      .pipe_partitioned = values.Get(keys::kPipelinePipePartitioned),
      .grad_partitioned = values.Get(keys::kPipelineGradPartitioned)};
}

std::optional<std::int64_t> DataRanks(const RuleContext& context) {
  const std::int64_t together = ReadParallel(context.values).ranks_of_a_sample();
  const std::int64_t all = context.facts.world_size;
  return all % together == 0 ? std::optional(all / together) : std::nullopt;
}

std::optional<std::int64_t> StateRanks(const RuleContext& context) {
  const auto ranks = DataRanks(context);
  if (!ranks) return std::nullopt;
  return *ranks * ReadParallel(context.values).sequence;
}

std::string NameDataRanks(const RuleContext& context) {
  const std::int64_t together = ReadParallel(context.values).ranks_of_a_sample();
  std::string name = "world size " + std::to_string(context.facts.world_size);
  if (together > 1) name += " / " + std::to_string(together) + " ranks of a sample";
  return name;
}

}  // namespace ds::config
