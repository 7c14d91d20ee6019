#include "runtime/data/loader.h"

#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace ds::data {
namespace {

constexpr const char* kEndsKey = "tokens_crc32c";
constexpr const char* kMiddlesKey = "tokens_between_crc32c";

bool IsFingerprint(const std::string& key) { return key == kEndsKey || key == kMiddlesKey; }

}  // namespace

StatusOr<std::unique_ptr<Loader>> Loader::Create(TokenSource source, const LoaderOptions& options) {
  DS_CHECK(options.micro_batch >= 1 && options.seq_len >= 1 && options.vocab_size >= 1);
  DS_CHECK(options.reader.index >= 0 && options.reader.index < options.reader.count);
  const std::int64_t samples = (source.size() - 1) / options.seq_len;
  if (samples < 1) {
    return InvalidArgumentError(
        "the data has " + std::to_string(source.size()) + " tokens, one sample of seq_len " +
        std::to_string(options.seq_len) + " needs " + std::to_string(options.seq_len + 1));
  }
  DS_ASSIGN_OR_RETURN(const Part part, ChoosePart(samples, options));
  DS_ASSIGN_OR_RETURN(const Fingerprints prints, source.TakeFingerprints());
  return std::unique_ptr<Loader>(new Loader(std::move(source), options, part, prints));
}

StatusOr<Loader::Part> Loader::ChoosePart(std::int64_t samples, const LoaderOptions& options) {
  if (options.held_out == 0.0) return Part{0, samples};
  const double share = std::round(options.held_out * static_cast<double>(samples));
  const auto held = std::max<std::int64_t>(1, static_cast<std::int64_t>(share));
  if (held >= samples) {
    return InvalidArgumentError("the data has " + std::to_string(samples) +
                                " samples, of which none would be left to train on");
  }
  return options.takes_held_out ? Part{samples - held, held} : Part{0, samples - held};
}

std::int64_t Loader::batches_per_epoch() const {
  const std::int64_t places = options_.micro_batch * options_.reader.count;
  return (samples_per_epoch() + places - 1) / places;
}

StatusOr<Batch> Loader::Next() {
  const std::int64_t batch = options_.micro_batch, length = options_.seq_len;
  Batch result;
  const auto options = at::TensorOptions(at::kLong).pinned_memory(options_.pinned);
  result.inputs = at::empty({batch, length}, options);
  result.labels = at::empty({batch, length}, options);
  if (source_.has_documents()) result.documents = at::empty({batch, length}, options);
  result.tokens = batch * length;
  auto* inputs = result.inputs.mutable_data_ptr<std::int64_t>();
  auto* labels = result.labels.mutable_data_ptr<std::int64_t>();
  std::vector<std::int64_t> sample(static_cast<std::size_t>(length) + 1);
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::int64_t place = consumed_ + options_.reader.index * batch + row;
    const std::int64_t first = (first_sample_ + sampler_.At(place)) * length;
    DS_RETURN_IF_ERROR(source_.Read(first, sample));
    DS_RETURN_IF_ERROR(CheckTokens(sample, first));
    std::copy_n(sample.begin(), length, inputs + row * length);
    std::copy_n(sample.begin() + 1, length, labels + row * length);
    if (source_.has_documents()) DS_RETURN_IF_ERROR(MarkDocuments(first, row, &result));
    if (options_.once && place >= sampler_.samples()) {
      std::fill_n(labels + row * length, length, kIgnoredLabel);
    }
  }
  // Samples of one document need no documents, and attention without them is faster.
  const bool is_packed = result.documents.defined() && result.documents.any().item<bool>();
  if (!is_packed) result.documents = at::Tensor();
  consumed_ += batch * options_.reader.count;
  return result;
}

Status Loader::MarkDocuments(std::int64_t first, std::int64_t row, Batch* batch) const {
  const std::int64_t length = options_.seq_len;
  std::vector<std::int64_t> documents(static_cast<std::size_t>(length) + 1);
  std::vector<std::int64_t> learnt(documents.size());
  DS_RETURN_IF_ERROR(source_.ReadDocuments(first, documents));
  DS_RETURN_IF_ERROR(source_.ReadLearnt(first, learnt));
  std::copy_n(documents.begin(), length,
              batch->documents.mutable_data_ptr<std::int64_t>() + row * length);
  auto* labels = batch->labels.mutable_data_ptr<std::int64_t>() + row * length;
  for (std::size_t i = 1; i < documents.size(); ++i) {
    if (documents[i] != documents[i - 1] || learnt[i] == 0) labels[i - 1] = kIgnoredLabel;
  }
  return OkStatus();
}

Status Loader::CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first) const {
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](std::int64_t id) { return id >= options_.vocab_size; });
  if (bad == tokens.end()) return OkStatus();
  return OutOfRangeError(source_.DescribePosition(first + (bad - tokens.begin())) + ": token id " +
                         std::to_string(*bad) + " is outside the model's vocabulary of " +
                         std::to_string(options_.vocab_size) + " tokens");
}

nlohmann::json Loader::State() const {
  return {{"consumed_samples", consumed_},  {"samples_per_epoch", sampler_.samples()},
          {kEndsKey, fingerprints_.ends},   {kMiddlesKey, fingerprints_.middles},
          {"seq_len", options_.seq_len},    {"shuffle", sampler_.options().shuffle},
          {"seed", sampler_.options().seed}};
}

Status Loader::LoadState(const nlohmann::json& state) {
  const nlohmann::json own = State();
  for (const auto& item : own.items()) {
    const auto saved = state.find(item.key());
    if (IsFingerprint(item.key()) && saved == state.end()) continue;
    const bool present = saved != state.end() && saved->is_boolean() == item.value().is_boolean() &&
                         saved->is_number_integer() == item.value().is_number_integer();
    if (!present) {
      return DataLossError("the saved data position lacks '" + item.key() + "'");
    }
    if (item.key() != "consumed_samples" && *saved != item.value()) {
      return FailedPreconditionError("the saved data position is one with " + item.key() + " " +
                                     saved->dump() + ", this run has " + item.value().dump() +
                                     "; continue with the data and order it was saved with");
    }
  }
  const auto consumed = state["consumed_samples"].get<std::int64_t>();
  if (consumed < 0) return DataLossError("the saved data position is negative");
  consumed_ = consumed;
  return OkStatus();
}

}  // namespace ds::data
