#include "runtime/config/sections/zero_section.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/parallel_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kStage = keys::kZeroOptimizationStage;
constexpr Key kOverlap = keys::kZeroOptimizationOverlapComm;
constexpr Key kLoco[] = {keys::kZeroOptimizationZeroppLocoParamErrBeta,
                         keys::kZeroOptimizationZeroppLocoParamResetT};

void SetOverlapDefault(RuleContext& context) {
  if (!context.values.Get(kOverlap).is_null()) return;
  context.values.Derive(kOverlap, ZeroStage(context.values) == 3,
                        "derived from zero_optimization.stage");
}

void CheckOverlappedLoadingStage(RuleContext& context) {
  constexpr Key kKey = keys::kZeroOptimizationPipelineLoadingCheckpoint;
  if (context.IsOn(kKey) && ZeroStage(context.values) != 3) {
    context.Refuse(kKey, "needs zero_optimization.stage 3");
  }
}

// DeepSpeed reads it at stage 3 only; here sharded state can use smaller groups at any stage.
void CheckMicsGroupSize(RuleContext& context) {
  constexpr Key kKey = keys::kZeroOptimizationMicsShardSize;
  const std::int64_t size = context.values.Get(kKey);
  if (size == -1) return;
  const std::optional<std::int64_t> ranks = StateRanks(context);
  if (!ranks) return;  // CheckDegrees
  const int sequence = ReadParallel(context.values).sequence;
  if (ZeroStage(context.values) == 0) {
    context.issues.Warning(kKey, std::string(kKey) + " has no effect at ZeRO stage 0",
                           context.values.PositionOf(kKey));
  } else if (size < 1 || *ranks % size != 0) {
    context.Refuse(kKey, "must divide the number of ranks, " + std::to_string(*ranks) +
                             ", and is " + std::to_string(size));
  } else if (size % sequence != 0) {
    context.Refuse(kKey, "must be a multiple of sequence_parallel_size, " +
                             std::to_string(sequence) + ", and is " + std::to_string(size));
  }
}

void CheckSecondaryShardSize(RuleContext& context) {
  constexpr Key kKey = keys::kZeroOptimizationZeroHpzPartitionSize;
  const std::int64_t size = context.values.Get(kKey);
  const std::int64_t mics = context.values.Get(keys::kZeroOptimizationMicsShardSize);
  const std::optional<std::int64_t> all = StateRanks(context);
  if (!all) return;  // CheckDegrees
  const std::int64_t ranks = mics > 0 ? mics : *all;
  if (ZeroStage(context.values) != 3 || size <= 1 || ranks % size == 0) return;
  context.Refuse(kKey, "must divide the number of ranks that share the state, " +
                           std::to_string(ranks) + ", and is " + std::to_string(size));
}

void CheckLocoQuantization(RuleContext& context) {
  if (context.IsOn(keys::kZeroOptimizationZeroQuantizedGradients)) return;
  for (const Key key : kLoco) {
    if (!context.IsChanged(key)) continue;
    context.Refuse(key, "needs zero_optimization.zero_quantized_gradients");
  }
}

void CheckZeroPlusPlusStage(RuleContext& context) {
  if (ZeroStage(context.values) == 3) return;
  for (const Key key :
       {keys::kZeroOptimizationZeroQuantizedWeights, keys::kZeroOptimizationZeroQuantizedGradients,
        keys::kZeroOptimizationZeroQuantizedNontrainableWeights,
        keys::kZeroOptimizationZeroHpzPartitionSize}) {
    if (!context.IsChanged(key)) continue;
    context.issues.Warning(key, std::string(key) + " has no effect below ZeRO stage 3",
                           context.values.PositionOf(key));
  }
}

// DeepSpeed checks this in the optimizer of stages 1 and 2, and there only with offload_optimizer.
void CheckUnusedParametersStage(RuleContext& context) {
  constexpr Key kKey = keys::kZeroOptimizationIgnoreUnusedParameters;
  if (context.values.Get(kKey) == true || ZeroStage(context.values) == 1 ||
      ZeroStage(context.values) == 2)
    return;
  context.issues.Warning(kKey, std::string(kKey) + " has no effect but at ZeRO stages 1 and 2",
                         context.values.PositionOf(kKey));
  context.values.Derive(kKey, true, "derived from zero_optimization.stage");
}

void DisableSequentialPrefetch(RuleContext& context) {
  if (!context.IsOn(keys::kZeroOptimizationStage3AllgatherSequential)) return;
  context.values.Derive(keys::kZeroOptimizationStage3PrefetchBucketSize, 1,
                        "derived from zero_optimization.stage3_allgather_sequential");
}

constexpr Rule kRules[] = {
    {"SetOverlapDefault", {kOverlap, kStage}, SetOverlapDefault},
    {"CheckOverlappedLoadingStage", {kStage}, CheckOverlappedLoadingStage},
    {"CheckMicsGroupSize", {keys::kZeroOptimizationMicsShardSize, kStage}, CheckMicsGroupSize},
    {"CheckSecondaryShardSize",
     {keys::kZeroOptimizationZeroHpzPartitionSize, keys::kZeroOptimizationMicsShardSize, kStage},
     CheckSecondaryShardSize},
    {"CheckLocoQuantization",
     {keys::kZeroOptimizationZeroQuantizedGradients},
     CheckLocoQuantization},
    {"CheckZeroPlusPlusStage", {kStage}, CheckZeroPlusPlusStage},
    {"CheckUnusedParametersStage",
     {keys::kZeroOptimizationIgnoreUnusedParameters, kStage},
     CheckUnusedParametersStage},
    {"DisableSequentialPrefetch", {}, DisableSequentialPrefetch},
};

// The presence of the section switches it on, with any values.
bool HasLoco(const Values& values) { return values.IsGiven(kLoco[0]) || values.IsGiven(kLoco[1]); }

std::optional<LocoConfig> ReadLoco(const Values& values) {
  const bool quantized = values.Get(keys::kZeroOptimizationZeroQuantizedGradients);
  if (!quantized || !HasLoco(values)) return std::nullopt;
  return LocoConfig{.err_beta = values.Get(kLoco[0]), .reset_every = values.Get(kLoco[1])};
}

// DeepSpeed's defaults of these differ from the runtime's: a written value is used even if it is
// DeepSpeed's default.
constexpr Key kOwnDefaults[] = {keys::kZeroOptimizationReduceBucketSize,
                                keys::kZeroOptimizationStage3PrefetchBucketSize,
                                keys::kZeroOptimizationStage3ParamPersistenceThreshold,
                                keys::kZeroOptimizationStage3ModelPersistenceThreshold,
                                keys::kZeroOptimizationStage3MaxLiveParameters,
                                keys::kZeroOptimizationStage3MaxReuseDistance,
                                keys::kZeroOptimizationAllgatherBucketSize,
                                keys::kZeroOptimizationOffloadOptimizerCpuadamCoresPerc};

// DeepSpeed 0.19.8 rejects any config that names them, even at their defaults.
constexpr Key kMics[] = {keys::kZeroOptimizationMicsShardSize,
                         keys::kZeroOptimizationMicsHierarchicalParamsGather};

std::optional<std::int64_t> ReadBudget(const Values& values, Key key) {
  if (!IsChosen(values, key)) return std::nullopt;
  return values.Get(key).get<std::int64_t>();
}

}  // namespace

std::span<const Rule> ZeroRules() { return kRules; }

bool IsChosen(const Values& values, Key key) {
  return values.IsGiven(key) || !IsDefault(*FindSetting(key), values.Get(key));
}

bool ZeroOmitsKey(const Values& values, Key key) {
  const bool is_loco = key == kLoco[0] || key == kLoco[1];
  const bool has_own_default =
      std::find(std::begin(kOwnDefaults), std::end(kOwnDefaults), key) != std::end(kOwnDefaults);
  const bool is_mics = std::find(std::begin(kMics), std::end(kMics), key) != std::end(kMics);
  return key == keys::kZeroOptimizationGradHooks || (is_loco && !HasLoco(values)) ||
         (has_own_default && !IsChosen(values, key)) ||
         (is_mics && IsDefault(*FindSetting(key), values.Get(key)));
}

void FillZero(const Values& values, DsConfig* config) {
  const int mics_shard_size = values.Get(keys::kZeroOptimizationMicsShardSize);
  config->zero_optimization = {
      .stage = values.Get(keys::kZeroOptimizationStage),
      .ignore_unused_parameters = values.Get(keys::kZeroOptimizationIgnoreUnusedParameters),
      .mics_shard_size = mics_shard_size > 0 ? std::optional(mics_shard_size) : std::nullopt,
      .hpz_partition_size = values.Get(keys::kZeroOptimizationZeroHpzPartitionSize),
      .quantized_weights = values.Get(keys::kZeroOptimizationZeroQuantizedWeights),
      .quantized_gradients = values.Get(keys::kZeroOptimizationZeroQuantizedGradients),
      .quantized_frozen_weights =
          values.Get(keys::kZeroOptimizationZeroQuantizedNontrainableWeights),
      .loco = ReadLoco(values),
      .overlap_comm = values.Get(kOverlap) == true,
      .reduce_bucket_size = ReadBudget(values, keys::kZeroOptimizationReduceBucketSize),
      .allgather_bucket_size = ReadBudget(values, keys::kZeroOptimizationAllgatherBucketSize),
      .prefetch_bucket_size = ReadBudget(values, keys::kZeroOptimizationStage3PrefetchBucketSize),
      .param_persistence_threshold =
          ReadBudget(values, keys::kZeroOptimizationStage3ParamPersistenceThreshold),
      .model_persistence_threshold =
          ReadBudget(values, keys::kZeroOptimizationStage3ModelPersistenceThreshold),
      .max_live_parameters = ReadBudget(values, keys::kZeroOptimizationStage3MaxLiveParameters),
      .max_reuse_distance = ReadBudget(values, keys::kZeroOptimizationStage3MaxReuseDistance)};
}

std::int64_t ZeroStage(const Values& values) { return values.Get(kStage); }

}  // namespace ds::config
