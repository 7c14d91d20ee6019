#include "runtime/config/sections/dynamic_batching_section.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/keys/keys.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kBatching = keys::kDataEfficiencyDataSamplingDynamicBatchingEnabled;
constexpr Key kMostTokensOfBatch = keys::kDataEfficiencyDataSamplingDynamicBatchingMaxTokens;
constexpr Key kLeastSamples = keys::kDataEfficiencyDataSamplingDynamicBatchingMinBatchSize;
constexpr Key kMostSamples = keys::kDataEfficiencyDataSamplingDynamicBatchingMaxBatchSize;

bool HasDynamicBatching(const Values& values) {
  const Key switches[] = {keys::kDataEfficiencyEnabled, keys::kDataEfficiencyDataSamplingEnabled,
                          kBatching};
  return std::all_of(std::begin(switches), std::end(switches),
                     [&](Key key) { return values.Get(key) == true; });
}

}  // namespace

void DynamicBatchingIsDefined(RuleContext& context) {
  const Values& values = context.values;
  if (!HasDynamicBatching(values)) return;
  if (values.Get(kMostTokensOfBatch).is_null() && !values.IsBroken(kMostTokensOfBatch)) {
    context.Refuse(kMostTokensOfBatch, "is missing: dynamic_batching needs it");
  }
  const Json most = values.Get(kMostSamples);
  if (most.is_number() && most < values.Get(kLeastSamples)) {
    context.Refuse(kMostSamples, "must not be below min_batch_size");
  }
  if (context.IsOn(keys::kCurriculumLearningEnabled) ||
      context.IsOn(keys::kDataEfficiencyDataSamplingCurriculumLearningEnabled)) {
    context.Refuse(kBatching,
                   "cannot be combined with curriculum learning: which samples a micro-batch has "
                   "follows from their lengths then, not from the step");
  }
  const Json ranks = values.Get(keys::kSequenceParallelSize);
  if (ranks.is_number() && ranks > Json(1)) {
    context.Refuse(kBatching, "cannot be combined with sequence_parallel_size " + ranks.dump() +
                                  ": micro-batches are as long as their longest sample, which "
                                  "need not divide among ranks");
  }
}

std::optional<DynamicBatching> ReadDynamicBatching(const Values& values) {
  if (!HasDynamicBatching(values)) return std::nullopt;
  using Scaling = DynamicBatching::RateScaling;
  using Picking = DynamicBatching::Picking;
  const Json scaling = values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingLrScalingMethod);
  const Json picking =
      values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingSequencePickingOrder);
  const Json path = values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingMetricsPath);
  const Json most = values.Get(kMostSamples);
  DynamicBatching read{
      .max_tokens = values.Get(kMostTokensOfBatch),
      .min_batch_size = values.Get(kLeastSamples),
      .picking = picking == "random"   ? Picking::kRandom
                 : picking == "seqlen" ? Picking::kLength
                                       : Picking::kDataloader,
      .rate_scaling = scaling == "sqrt"   ? Scaling::kRoot
                      : scaling == "none" ? Scaling::kNone
                                          : Scaling::kLinear,
      .verbose = values.Get(keys::kDataEfficiencyDataSamplingDynamicBatchingVerbose)};
  if (most.is_number()) read.max_batch_size = most.get<std::int64_t>();
  if (path.is_string()) read.metrics_path = path.get<std::string>();
  return read;
}

}  // namespace ds::config
