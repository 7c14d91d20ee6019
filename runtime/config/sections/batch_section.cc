#include "runtime/config/sections/batch_section.h"

#include <algorithm>
#include <string>

#include "runtime/base/check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/parallel_section.h"

namespace ds::config {
namespace {

// Larger batches are mistakes. Below this limit no product of three factors overflows unnoticed.
constexpr std::int64_t kLargest = std::int64_t{1} << 40;

std::optional<std::int64_t> Product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product)) {
    return std::nullopt;
  }
  return product <= kLargest ? std::optional(product) : std::nullopt;
}

BatchConfig Derive(const GivenBatchSizes& given, std::int64_t world_size) {
  BatchConfig batch{given.train.value_or(0), given.micro.value_or(0),
                    given.accumulation.value_or(0)};
  if (!given.accumulation) {
    const bool both = given.train && given.micro;
    batch.gradient_accumulation_steps = both ? *given.train / *given.micro / world_size : 1;
  }
  if (!given.micro) {
    batch.train_micro_batch_size_per_gpu =
        *given.train / world_size / batch.gradient_accumulation_steps;
  }
  if (!given.train) {
    batch.train_batch_size =
        Product(batch.train_micro_batch_size_per_gpu, batch.gradient_accumulation_steps, world_size)
            .value_or(0);
  }
  return batch;
}

std::string Named(Key name, std::int64_t value, bool was_given) {
  return std::string(name) + " " + std::to_string(value) + (was_given ? "" : " (derived)");
}

// Returns "set a to 1, or b to 2": the changes of one number that satisfy the equation.
std::string Fixes(const BatchConfig& batch, std::int64_t world_size) {
  const std::int64_t train = batch.train_batch_size;
  // A size that floor division left at 0 counts as 1.
  const std::int64_t micro = std::max<std::int64_t>(batch.train_micro_batch_size_per_gpu, 1);
  const std::int64_t accumulation = std::max<std::int64_t>(batch.gradient_accumulation_steps, 1);
  std::string text;
  const auto add = [&](Key name, std::int64_t value) {
    text += text.empty() ? ": set " : ", or ";
    text += std::string(name) + " to " + std::to_string(value);
  };
  if (const auto product = Product(micro, accumulation, world_size)) {
    add(keys::kTrainBatchSize, *product);
  }
  const auto divides = [&](std::int64_t factor) {
    const auto product = Product(factor, world_size, 1);
    return product && train % *product == 0;
  };
  if (divides(accumulation)) {
    add(keys::kTrainMicroBatchSizePerGpu, train / accumulation / world_size);
  }
  if (divides(micro)) add(keys::kGradientAccumulationSteps, train / micro / world_size);
  return text;
}

Status AtLeastOne(Key name, std::optional<std::int64_t> value) {
  if (value.value_or(1) >= 1) return OkStatus();
  return InvalidArgumentError(std::string(name) + " must be at least 1, not " +
                              std::to_string(*value));
}

Status TooLarge() {
  return InvalidArgumentError("the batch has more than " + std::to_string(kLargest) + " samples");
}

}  // namespace

StatusOr<BatchConfig> SolveBatchSizes(const GivenBatchSizes& given, std::int64_t world_size) {
  DS_CHECK(world_size >= 1);
  DS_RETURN_IF_ERROR(AtLeastOne(keys::kTrainBatchSize, given.train));
  DS_RETURN_IF_ERROR(AtLeastOne(keys::kTrainMicroBatchSizePerGpu, given.micro));
  DS_RETURN_IF_ERROR(AtLeastOne(keys::kGradientAccumulationSteps, given.accumulation));
  if (!given.train && !given.micro) {
    return InvalidArgumentError(
        "either train_batch_size or train_micro_batch_size_per_gpu is needed: add for example "
        "\"train_micro_batch_size_per_gpu\": 1");
  }
  const BatchConfig batch = Derive(given, world_size);
  const auto [train, micro, accumulation] = batch;
  const auto product = Product(micro, accumulation, world_size);
  if (!given.train && !product) return TooLarge();
  if (product && train > 0 && train == *product) return batch;
  return InvalidArgumentError(
      Named(keys::kTrainBatchSize, train, given.train.has_value()) + " is not " +
      Named(keys::kTrainMicroBatchSizePerGpu, micro, given.micro.has_value()) + " * " +
      Named(keys::kGradientAccumulationSteps, accumulation, given.accumulation.has_value()) +
      " * world size " + std::to_string(world_size) + Fixes(batch, world_size));
}

StatusOr<BatchConfig> WithTrainBatchSize(const BatchConfig& batch, std::int64_t train,
                                         std::int64_t world_size) {
  DS_RETURN_IF_ERROR(AtLeastOne(keys::kTrainBatchSize, train));
  const std::int64_t micro = batch.train_micro_batch_size_per_gpu;
  const auto samples = Product(micro, 1, world_size);
  DS_CHECK(samples.has_value() && *samples >= 1);
  const std::int64_t below = train / *samples * *samples;
  if (below == train) return BatchConfig{train, micro, train / *samples};
  std::string nearest = std::to_string(below + *samples);
  if (below > 0) nearest = std::to_string(below) + " or " + nearest;
  return InvalidArgumentError("train_batch_size " + std::to_string(train) +
                              " is not a multiple of " + std::to_string(*samples) +
                              " (train_micro_batch_size_per_gpu " + std::to_string(micro) +
                              " * world size " + std::to_string(world_size) + "): use " + nearest);
}

StatusOr<BatchConfig> WithMicroBatchSize(const BatchConfig& batch, std::int64_t micro,
                                         std::int64_t world_size) {
  DS_RETURN_IF_ERROR(AtLeastOne(keys::kTrainMicroBatchSizePerGpu, micro));
  const auto train = Product(micro, batch.gradient_accumulation_steps, world_size);
  if (!train) return TooLarge();
  return BatchConfig{*train, micro, batch.gradient_accumulation_steps};
}

namespace {

using Json = nlohmann::ordered_json;

constexpr Key kTrainBatch = keys::kTrainBatchSize;
constexpr Key kMicroBatch = keys::kTrainMicroBatchSizePerGpu;
constexpr Key kAccumulation = keys::kGradientAccumulationSteps;

std::optional<std::int64_t> GivenSize(const Values& values, Key key) {
  const Json value = values.Get(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

void DeriveBatchSizes(RuleContext& context) {
  Values& values = context.values;
  if (values.Get(keys::kElasticityEnabled) == true) return;  // DeriveElasticBatch
  const GivenBatchSizes given = {.train = GivenSize(values, kTrainBatch),
                                 .micro = GivenSize(values, kMicroBatch),
                                 .accumulation = GivenSize(values, kAccumulation)};
  const std::optional<std::int64_t> ranks = DataRanks(context);
  if (!ranks) return;  // CheckDegrees
  const StatusOr<BatchConfig> batch = SolveBatchSizes(given, *ranks);
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
  from += " " + NameDataRanks(context);
  const auto derive = [&](Key key, std::int64_t value) {
    if (values.Get(key).is_null()) values.Derive(key, value, from);
  };
  derive(kTrainBatch, batch->train_batch_size);
  derive(kMicroBatch, batch->train_micro_batch_size_per_gpu);
  derive(kAccumulation, batch->gradient_accumulation_steps);
}

constexpr Rule kRules[] = {{"DeriveBatchSizes",
                            {kTrainBatch, kMicroBatch, kAccumulation, keys::kElasticityEnabled},
                            DeriveBatchSizes}};

}  // namespace

std::span<const Rule> BatchRules() { return kRules; }

void FillBatch(const Values& values, DsConfig* config) {
  config->batch = {.train_batch_size = values.Get(kTrainBatch),
                   .train_micro_batch_size_per_gpu = values.Get(kMicroBatch),
                   .gradient_accumulation_steps = values.Get(kAccumulation)};
}

}  // namespace ds::config
