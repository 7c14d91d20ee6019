#include "runtime/data/loader.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/checkpoint/format/crc32c.h"

namespace ds::data {
namespace {

constexpr const char* kEndsKey = "tokens_crc32c";
constexpr const char* kMiddlesKey = "tokens_between_crc32c";
constexpr const char* kPackingKey = "packing";
constexpr const char* kWeightsKey = "weights";

// Keys that older checkpoints lack.
bool IsNewer(const std::string& key) {
  return key == kEndsKey || key == kMiddlesKey || key == kPackingKey || key == kWeightsKey;
}

// Returns what such a checkpoint would say.
nlohmann::json OlderValue(const std::string& key, const nlohmann::json& own) {
  if (key == kPackingKey) return NamePacking(Packing::kStream);
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

// Several sources have a checksum of theirs.
std::uint32_t Combine(const std::vector<SampleSet>& sets, std::uint32_t Fingerprints::*print) {
  if (sets.size() == 1) return sets[0].fingerprints().*print;
  std::uint32_t crc = 0;
  for (const SampleSet& set : sets) {
    crc = checkpoint::ExtendCrc32c(crc, std::as_bytes(std::span(&(set.fingerprints().*print), 1)));
  }
  return crc;
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
  return std::unique_ptr<Loader>(new Loader(std::move(sets), options));
}

Loader::Loader(std::vector<SampleSet> sets, const LoaderOptions& options)
    : sets_(std::move(sets)), options_(options), blend_(ChooseWeights(sets_, options)) {
  for (const SampleSet& set : sets_) samplers_.emplace_back(set.size(), options.order);
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
  const std::int64_t places = options_.micro_batch * options_.reader.count;
  return (samples_per_epoch() + places - 1) / places;
}

Batch Loader::MakeBatch() const {
  const std::int64_t batch = options_.micro_batch, length = options_.seq_len;
  const auto options = at::TensorOptions(at::kLong).pinned_memory(options_.pinned);
  Batch result{.inputs = at::empty({batch, length}, options),
               .labels = at::empty({batch, length}, options),
               .tokens = batch * length};
  const bool knows_documents =
      std::any_of(sets_.begin(), sets_.end(), [](const auto& set) { return set.has_documents(); });
  if (knows_documents) result.documents = at::empty({batch, length}, options);
  return result;
}

StatusOr<Batch> Loader::Next() {
  const std::int64_t batch = options_.micro_batch;
  Batch result = MakeBatch();
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::int64_t place = consumed_ + options_.reader.index * batch + row;
    const Blend::Place at = blend_.At(place);
    const std::int64_t sample = samplers_[at.source].At(at.index);
    DS_RETURN_IF_ERROR(sets_[at.source].FillRow(sample, row, &result));
    if (options_.once && place >= samples_per_epoch()) result.labels[row].fill_(kIgnoredLabel);
  }
  // Samples of one document need no documents, and attention without them is faster.
  const bool is_packed = result.documents.defined() && result.documents.any().item<bool>();
  if (!is_packed) result.documents = at::Tensor();
  consumed_ += batch * options_.reader.count;
  return result;
}

StatusOr<std::int64_t> Loader::CountLabels() {
  Restart();
  std::int64_t labels = 0;
  for (std::int64_t i = 0; i < batches_per_epoch(); ++i) {
    DS_ASSIGN_OR_RETURN(const Batch batch, Next());
    labels += batch.labels.ne(kIgnoredLabel).sum().item<std::int64_t>();
  }
  Restart();
  return labels;
}

nlohmann::json Loader::State() const {
  return {{"consumed_samples", consumed_},
          {"samples_per_epoch", samples_per_epoch()},
          {kEndsKey, Combine(sets_, &Fingerprints::ends)},
          {kMiddlesKey, Combine(sets_, &Fingerprints::middles)},
          {"seq_len", options_.seq_len},
          {kPackingKey, NamePacking(options_.packing)},
          {kWeightsKey, options_.weights},
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
    if (item.key() != "consumed_samples" && saved != item.value()) {
      return FailedPreconditionError("the saved data position is one with " + item.key() + " " +
                                     saved.dump() + ", this run has " + item.value().dump() +
                                     "; continue with the data and order it was saved with");
    }
  }
  const auto consumed = state["consumed_samples"].get<std::int64_t>();
  if (consumed < 0) return DataLossError("the saved data position is negative");
  consumed_ = consumed;
  return OkStatus();
}

namespace {

constexpr std::int64_t kPadding = 0;  // any id: nobody learns from it

StatusOr<SamplePlan> PlanSamples(const TokenSource& source, const LoaderOptions& options) {
  if (options.packing == Packing::kStream) {
    return SamplePlan::Stream(source.size(), options.seq_len);
  }
  if (!source.has_documents()) {
    return InvalidArgumentError(
        "packing by documents (--packing) needs texts that a tokenizer cuts: of bytes and of .bin "
        "files nobody knows where a document ends");
  }
  return SamplePlan::Whole(source.documents(), options.seq_len,
                           /*one_each=*/options.packing == Packing::kNone);
}

}  // namespace

StatusOr<SampleSet> SampleSet::Create(TokenSource source, const LoaderOptions& options) {
  DS_ASSIGN_OR_RETURN(SamplePlan plan, PlanSamples(source, options));
  if (plan.samples() < 1) {
    return InvalidArgumentError(
        "the data has " + std::to_string(source.size()) + " tokens, one sample of seq_len " +
        std::to_string(options.seq_len) + " needs " + std::to_string(options.seq_len + 1));
  }
  SampleSet set(std::move(source), std::move(plan), options);
  DS_RETURN_IF_ERROR(set.ChoosePart(options));
  DS_ASSIGN_OR_RETURN(set.fingerprints_, set.source_.TakeFingerprints());
  return set;
}

Status SampleSet::ChoosePart(const LoaderOptions& options) {
  size_ = plan_.samples();
  if (options.held_out == 0.0) return OkStatus();
  const double share = std::round(options.held_out * static_cast<double>(size_));
  const auto held = std::max<std::int64_t>(1, static_cast<std::int64_t>(share));
  if (held >= size_) {
    return InvalidArgumentError("the data has " + std::to_string(size_) +
                                " samples, of which none would be left to train on");
  }
  first_ = options.takes_held_out ? size_ - held : 0;
  size_ = options.takes_held_out ? held : size_ - held;
  return OkStatus();
}

Status SampleSet::FillRow(std::int64_t sample, std::int64_t row, Batch* batch) const {
  const SampleRange range = plan_.At(first_ + sample);
  const std::int64_t length = seq_len_;
  const std::int64_t readable = std::min(range.count + 1, source_.size() - range.first);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(readable));
  DS_RETURN_IF_ERROR(source_.Read(range.first, tokens));
  DS_RETURN_IF_ERROR(CheckTokens(tokens, range.first));
  auto* const inputs = batch->inputs.mutable_data_ptr<std::int64_t>() + row * length;
  auto* const labels = batch->labels.mutable_data_ptr<std::int64_t>() + row * length;
  std::fill(std::copy_n(tokens.begin(), range.count, inputs), inputs + length, kPadding);
  std::fill(std::copy(tokens.begin() + 1, tokens.end(), labels), labels + length, kIgnoredLabel);
  if (has_documents()) return MarkDocuments(range, row, batch);
  if (batch->documents.defined()) batch->documents[row].fill_(0);
  return OkStatus();
}

// Padding is of the last document, which does not see it: no mask is needed for its sake.
Status SampleSet::MarkDocuments(SampleRange range, std::int64_t row, Batch* batch) const {
  const std::int64_t length = seq_len_;
  const std::int64_t readable = std::min(range.count + 1, source_.size() - range.first);
  std::vector<std::int64_t> documents(static_cast<std::size_t>(readable));
  std::vector<std::int64_t> learnt(documents.size());
  DS_RETURN_IF_ERROR(source_.ReadDocuments(range.first, documents));
  DS_RETURN_IF_ERROR(source_.ReadLearnt(range.first, learnt));
  auto* const numbers = batch->documents.mutable_data_ptr<std::int64_t>() + row * length;
  const auto last = static_cast<std::size_t>(range.count) - 1;
  std::fill(std::copy_n(documents.begin(), range.count, numbers), numbers + length,
            documents[last]);
  auto* const labels = batch->labels.mutable_data_ptr<std::int64_t>() + row * length;
  for (std::size_t i = 1; i < documents.size(); ++i) {
    if (documents[i] != documents[i - 1] || learnt[i] == 0) labels[i - 1] = kIgnoredLabel;
  }
  return OkStatus();
}

Status SampleSet::CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first) const {
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](std::int64_t id) { return id >= vocab_size_; });
  if (bad == tokens.end()) return OkStatus();
  return OutOfRangeError(source_.DescribePosition(first + (bad - tokens.begin())) + ": token id " +
                         std::to_string(*bad) + " is outside the model's vocabulary of " +
                         std::to_string(vocab_size_) + " tokens");
}

}  // namespace ds::data
