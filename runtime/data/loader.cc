#include "runtime/data/loader.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/data/sample_difficulty.h"

namespace ds::data {
namespace {

constexpr const char* kConsumedKey = "consumed_samples";
constexpr const char* kEndsKey = "tokens_crc32c";
constexpr const char* kMiddlesKey = "tokens_between_crc32c";
constexpr const char* kPackingKey = "packing";
constexpr const char* kWeightsKey = "weights";
constexpr const char* kCurriculumKey = "curriculum";
constexpr const char* kBatchingKey = "dynamic_batching";

// Returns whether older checkpoints lack the key.
bool IsNewer(const std::string& key) {
  return key == kEndsKey || key == kMiddlesKey || key == kPackingKey || key == kWeightsKey ||
         key == kCurriculumKey || key == kBatchingKey;
}

// Returns the value that an older checkpoint implies.
nlohmann::json OlderValue(const std::string& key, const nlohmann::json& own) {
  if (key == kPackingKey) return NamePacking(Packing::kStream);
  if (key == kCurriculumKey || key == kBatchingKey) return {};
  return key == kWeightsKey ? nlohmann::json::array() : own;
}

nlohmann::json FindField(const nlohmann::json& state, const std::string& key) {
  return state.contains(key) ? state[key] : nlohmann::json();
}

std::vector<double> ChooseWeights(const std::vector<SampleSet>& sets,
                                  const LoaderOptions& options) {
  if (!options.weights.empty()) return options.weights;
  std::vector<double> sizes;
  for (const SampleSet& set : sets) sizes.push_back(static_cast<double>(set.size()));
  return sizes;
}

// Combines the fingerprints of several sources into one checksum.
std::uint32_t Combine(const std::vector<SampleSet>& sets, std::uint32_t Fingerprints::*print) {
  if (sets.size() == 1) return sets[0].fingerprints().*print;
  std::uint32_t crc = 0;
  for (const SampleSet& set : sets) {
    crc = checkpoint::ExtendCrc32c(crc, std::as_bytes(std::span(&(set.fingerprints().*print), 1)));
  }
  return crc;
}

// Returns OK if the first step has a sample by this metric. Several metrics may still have none in
// common.
Status CheckFirstStep(const config::SampleMetric& metric,
                      const std::vector<std::int64_t>& difficulties) {
  const std::int64_t easiest = *std::min_element(difficulties.begin(), difficulties.end());
  const std::int64_t bound = config::DifficultyAt(metric.difficulty, /*step=*/1);
  if (easiest <= bound) return OkStatus();
  std::string each = "the easiest has " + std::to_string(easiest);
  if (easiest == kNever) each = "the maps name none";
  return InvalidArgumentError("data_efficiency: by the metric " + metric.name +
                              " no sample is easy enough for the bound of the first step, " +
                              std::to_string(bound) + ", and " + each + "; raise min_difficulty");
}

}  // namespace

StatusOr<std::unique_ptr<Loader>> Loader::Create(TokenSource source, const LoaderOptions& options) {
  std::vector<TokenSource> sources;
  sources.push_back(std::move(source));
  return Create(std::move(sources), options);
}

StatusOr<std::unique_ptr<Loader>> Loader::Create(std::vector<TokenSource> sources,
                                                 const LoaderOptions& options) {
  DS_CHECK(options.micro_batch >= 1 && options.seq_len >= 1 && options.vocab_size >= 1);
  DS_CHECK(options.reader.index >= 0 && options.reader.index < options.reader.count);
  DS_CHECK(options.weights.empty() || options.weights.size() == sources.size());
  std::vector<SampleSet> sets;
  for (TokenSource& source : sources) {
    DS_ASSIGN_OR_RETURN(SampleSet set, SampleSet::Create(std::move(source), options));
    sets.push_back(std::move(set));
  }
  std::unique_ptr<Loader> loader(new Loader(std::move(sets), options));
  if (!options.metrics.empty()) DS_RETURN_IF_ERROR(loader->OrderByMetrics());
  if (options.batching) DS_RETURN_IF_ERROR(loader->BatchByTokens());
  return loader;
}

Loader::Loader(std::vector<SampleSet> sets, const LoaderOptions& options)
    : sets_(std::move(sets)), options_(options), blend_(ChooseWeights(sets_, options)) {
  for (const SampleSet& set : sets_) samplers_.emplace_back(set.size(), options.order);
}

// A sample is eligible from the first step at which all metrics allow it.
Status Loader::OrderByMetrics() {
  DS_CHECK(options_.samples_per_step >= 1);
  if (sets_.size() != 1) {
    return UnimplementedError(
        "data_efficiency: samples of a blend (--data_weights) are not chosen by metrics");
  }
  std::vector<std::int64_t> first_steps(static_cast<std::size_t>(sets_[0].size()), 1);
  for (const config::SampleMetric& metric : options_.metrics) {
    auto difficulties = FindDifficulties(
        metric, sets_[0],
        {.root = options_.cache, .seq_len = options_.seq_len, .packing = options_.packing});
    if (!difficulties.ok()) return difficulties.status().WithContext("the metric " + metric.name);
    DS_RETURN_IF_ERROR(CheckFirstStep(metric, *difficulties));
    std::map<std::int64_t, std::int64_t> steps = {{kNever, kNever}};
    for (std::size_t i = 0; i < first_steps.size(); ++i) {
      const auto [step, is_new] = steps.try_emplace((*difficulties)[i], kNever);
      if (is_new) step->second = FirstStepAt(metric.difficulty, step->first).value_or(kNever);
      first_steps[i] = std::max(first_steps[i], step->second);
    }
  }
  auto order = CurriculumOrder::Create(first_steps, options_.samples_per_step, options_.order);
  if (!order.ok()) return order.status().WithContext("data_efficiency: the curriculum");
  curriculum_ = *std::move(order);
  return OkStatus();
}

Status Loader::BatchByTokens() {
  using Picking = config::DynamicBatching::Picking;
  DS_CHECK(options_.samples_per_step >= 1 && options_.metrics.empty());
  if (sets_.size() != 1) {
    return UnimplementedError(
        "data_efficiency: dynamic_batching needs a single source of samples, and --data_weights "
        "makes several");
  }
  auto lengths = FindLengths(*options_.batching, sets_[0]);
  if (!lengths.ok()) return lengths.status().WithContext("dynamic_batching");
  Sampler sampler(sets_[0].size(), {.shuffle = options_.batching->picking == Picking::kRandom ||
                                               options_.order.shuffle,
                                    .seed = options_.order.seed});
  std::vector<std::int64_t> order(lengths->size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (options_.batching->picking == Picking::kLength) {
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return (*lengths)[static_cast<std::size_t>(a)] < (*lengths)[static_cast<std::size_t>(b)];
    });
  } else {
    for (std::int64_t& sample : order) sample = sampler.At(sample);
  }
  DS_ASSIGN_OR_RETURN(batches_, TokenBatches::Create(*lengths, order, *options_.batching,
                                                     options_.samples_per_step));
  return OkStatus();
}

std::vector<std::int64_t> Loader::CountSamples() const {
  std::vector<std::int64_t> counts;
  for (const SampleSet& set : sets_) counts.push_back(set.size());
  return counts;
}

std::int64_t Loader::samples_per_epoch() const {
  std::int64_t samples = 0;
  for (const SampleSet& set : sets_) samples += set.size();
  return samples;
}

std::int64_t Loader::batches_per_epoch() const {
  const std::int64_t positions = options_.micro_batch * options_.reader.count;
  return (samples_per_epoch() + positions - 1) / positions;
}

// Makes a batch; a batch by tokens is as long as its longest sample.
TokenBatch Loader::MakeBatch(std::vector<SampleName> samples) const {
  const auto batch = std::ssize(samples);
  std::int64_t length = batches_ ? 1 : options_.seq_len;
  for (const auto& [source, sample] : samples) {
    if (batches_) length = std::max(length, sets_[source].CountInputs(sample));
  }
  const auto options = at::TensorOptions(at::kLong).pinned_memory(options_.pinned);
  TokenBatch result{.inputs = at::empty({batch, length}, options),
                    .labels = at::empty({batch, length}, options),
                    .tokens = batch * length,
                    .position = FirstPosition(),
                    .samples = std::move(samples)};
  if (batches_) result.step_part = batches_->StepRangeAt(result.position);
  const bool knows_documents =
      std::any_of(sets_.begin(), sets_.end(), [](const auto& set) { return set.has_documents(); });
  if (knows_documents) result.documents = at::empty({batch, length}, options);
  return result;
}

std::int64_t Loader::FirstPosition() const {
  return consumed_ + options_.reader.index * options_.micro_batch;
}

std::vector<SampleName> Loader::FindSamples() {
  std::vector<SampleName> samples;
  for (std::int64_t i = 0; i < options_.micro_batch; ++i) {
    const std::int64_t position = FirstPosition() + i;
    if (batches_) {
      for (const std::int64_t sample : batches_->At(position))
        samples.push_back({.sample = sample});
      continue;
    }
    const Blend::SourceSample at = blend_.At(position);
    samples.push_back(
        {.source = at.source,
         .sample = curriculum_ ? curriculum_->At(position) : samplers_[at.source].At(at.index)});
  }
  return samples;
}

StatusOr<TokenBatch> Loader::Next() {
  TokenBatch result = MakeBatch(FindSamples());
  for (std::int64_t row = 0; row < std::ssize(result.samples); ++row) {
    const auto& [source, sample] = result.samples[static_cast<std::size_t>(row)];
    DS_RETURN_IF_ERROR(sets_[source].FillRow(sample, row, &result));
    const bool is_over = options_.once && result.position + row >= samples_per_epoch();
    if (is_over) result.labels[row].fill_(kIgnoredLabel);
  }
  // Samples with one document need no document numbers, and attention without them is faster.
  const bool is_packed = result.documents.defined() && result.documents.any().item<bool>();
  if (!is_packed) result.documents = at::Tensor();
  consumed_ += options_.micro_batch * options_.reader.count;
  return result;
}

StatusOr<std::int64_t> Loader::CountLabels() {
  Restart();
  std::int64_t labels = 0;
  for (std::int64_t i = 0; i < batches_per_epoch(); ++i) {
    DS_ASSIGN_OR_RETURN(const TokenBatch batch, Next());
    labels += batch.labels.ne(kIgnoredLabel).sum().item<std::int64_t>();
  }
  Restart();
  return labels;
}

nlohmann::json Loader::State() const {
  nlohmann::json curriculum;
  if (curriculum_) {
    curriculum = {{"samples_per_step", options_.samples_per_step},
                  {"order_crc32c", curriculum_->fingerprint()}};
  }
  nlohmann::json batching;
  if (batches_) {
    batching = {{"micro_batches_per_step", batches_->per_step()},
                {"order_crc32c", batches_->fingerprint()}};
  }
  return {{kConsumedKey, consumed_},
          {"samples_per_epoch", samples_per_epoch()},
          {kEndsKey, Combine(sets_, &Fingerprints::ends)},
          {kMiddlesKey, Combine(sets_, &Fingerprints::middles)},
          {"seq_len", options_.seq_len},
          {kPackingKey, NamePacking(options_.packing)},
          {kWeightsKey, options_.weights},
          {kCurriculumKey, curriculum},
          {kBatchingKey, batching},
          {"shuffle", options_.order.shuffle},
          {"seed", options_.order.seed}};
}

Status Loader::LoadState(const nlohmann::json& state) {
  const nlohmann::json own = State();
  for (const auto& item : own.items()) {
    const bool is_older = IsNewer(item.key()) && !state.contains(item.key());
    const nlohmann::json saved =
        is_older ? OlderValue(item.key(), item.value()) : FindField(state, item.key());
    const bool present = saved.is_boolean() == item.value().is_boolean() &&
                         saved.is_number_integer() == item.value().is_number_integer();
    if (!present) {
      return DataLossError("the saved data position lacks '" + item.key() + "'");
    }
    if (item.key() != kConsumedKey && saved != item.value()) {
      return FailedPreconditionError("the saved data position is one with " + item.key() + " " +
                                     saved.dump() + ", this run has " + item.value().dump() +
                                     "; continue with the data and order it was saved with");
    }
  }
  const auto consumed = state[kConsumedKey].get<std::int64_t>();
  if (consumed < 0) return DataLossError("the saved data position is negative");
  consumed_ = consumed;
  return OkStatus();
}

nlohmann::json Loader::MoveState(nlohmann::json state, std::int64_t position) {
  state[kConsumedKey] = position;
  return state;
}

}  // namespace ds::data
