#include "runtime/config/sections/batch_section.h"

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/batch_sizes.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kTrainBatch = keys::kTrainBatchSize;
constexpr Key kMicroBatch = keys::kTrainMicroBatchSizePerGpu;
constexpr Key kAccumulation = keys::kGradientAccumulationSteps;

std::optional<std::int64_t> GivenSize(const Values& values, Key key) {
  const Json value = values.Get(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

void BatchSizesAgree(RuleContext& context) {
  Values& values = context.values;
  if (values.Get(keys::kElasticityEnabled) == true) return;  // ElasticityDecidesTheBatch
  const GivenBatchSizes given = {.train = GivenSize(values, kTrainBatch),
                                 .micro = GivenSize(values, kMicroBatch),
                                 .accumulation = GivenSize(values, kAccumulation)};
  const StatusOr<BatchConfig> batch = SolveBatchSizes(given, context.facts.world_size);
  std::string from = "derived from";
  Key blamed = kTrainBatch;
  for (const Key key : {kAccumulation, kMicroBatch, kTrainBatch}) {
    if (values.Get(key).is_null()) continue;
    from += " " + std::string(key) + ",";
    blamed = key;
  }
  if (!batch.ok()) {
    context.issues.Error(blamed, batch.status().message(), values.PositionOf(blamed));
    return;
  }
  from += " world size " + std::to_string(context.facts.world_size);
  const auto derive = [&](Key key, std::int64_t value) {
    if (values.Get(key).is_null()) values.Derive(key, value, from);
  };
  derive(kTrainBatch, batch->train_batch_size);
  derive(kMicroBatch, batch->train_micro_batch_size_per_gpu);
  derive(kAccumulation, batch->gradient_accumulation_steps);
}

constexpr Rule kRules[] = {{"BatchSizesAgree",
                            {kTrainBatch, kMicroBatch, kAccumulation, keys::kElasticityEnabled},
                            BatchSizesAgree}};

}  // namespace

std::span<const Rule> BatchRules() { return kRules; }

void FillBatch(const Values& values, DsConfig* config) {
  config->batch = {.train_batch_size = values.Get(kTrainBatch),
                   .train_micro_batch_size_per_gpu = values.Get(kMicroBatch),
                   .gradient_accumulation_steps = values.Get(kAccumulation)};
}

}  // namespace ds::config
