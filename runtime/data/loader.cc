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
constexpr const char* kPackingKey = "packing";
constexpr std::int64_t kPadding = 0;  // any id: nobody learns from it

bool IsFingerprint(const std::string& key) { return key == kEndsKey || key == kMiddlesKey; }

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

StatusOr<std::unique_ptr<Loader>> Loader::Create(TokenSource source, const LoaderOptions& options) {
  DS_CHECK(options.micro_batch >= 1 && options.seq_len >= 1 && options.vocab_size >= 1);
  DS_CHECK(options.reader.index >= 0 && options.reader.index < options.reader.count);
  DS_ASSIGN_OR_RETURN(SamplePlan plan, PlanSamples(source, options));
  if (plan.samples() < 1) {
    return InvalidArgumentError(
        "the data has " + std::to_string(source.size()) + " tokens, one sample of seq_len " +
        std::to_string(options.seq_len) + " needs " + std::to_string(options.seq_len + 1));
  }
  DS_ASSIGN_OR_RETURN(const Part part, ChoosePart(plan.samples(), options));
  DS_ASSIGN_OR_RETURN(const Fingerprints prints, source.TakeFingerprints());
  return std::unique_ptr<Loader>(
      new Loader(std::move(source), options, std::move(plan), part, prints));
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
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::int64_t place = consumed_ + options_.reader.index * batch + row;
    const SampleRange range = plan_.At(first_sample_ + sampler_.At(place));
    DS_RETURN_IF_ERROR(FillRow(range, row, &result));
    if (options_.once && place >= sampler_.samples()) result.labels[row].fill_(kIgnoredLabel);
  }
  // Samples of one document need no documents, and attention without them is faster.
  const bool is_packed = result.documents.defined() && result.documents.any().item<bool>();
  if (!is_packed) result.documents = at::Tensor();
  consumed_ += batch * options_.reader.count;
  return result;
}

Status Loader::FillRow(SampleRange range, std::int64_t row, Batch* batch) const {
  const std::int64_t length = options_.seq_len;
  const std::int64_t readable = std::min(range.count + 1, source_.size() - range.first);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(readable));
  DS_RETURN_IF_ERROR(source_.Read(range.first, tokens));
  DS_RETURN_IF_ERROR(CheckTokens(tokens, range.first));
  auto* const inputs = batch->inputs.mutable_data_ptr<std::int64_t>() + row * length;
  auto* const labels = batch->labels.mutable_data_ptr<std::int64_t>() + row * length;
  std::fill(std::copy_n(tokens.begin(), range.count, inputs), inputs + length, kPadding);
  std::fill(std::copy(tokens.begin() + 1, tokens.end(), labels), labels + length, kIgnoredLabel);
  return source_.has_documents() ? MarkDocuments(range, row, batch) : OkStatus();
}

// Padding is of the last document, which does not see it: no mask is needed for its sake.
Status Loader::MarkDocuments(SampleRange range, std::int64_t row, Batch* batch) const {
  const std::int64_t length = options_.seq_len;
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

Status Loader::CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first) const {
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](std::int64_t id) { return id >= options_.vocab_size; });
  if (bad == tokens.end()) return OkStatus();
  return OutOfRangeError(source_.DescribePosition(first + (bad - tokens.begin())) + ": token id " +
                         std::to_string(*bad) + " is outside the model's vocabulary of " +
                         std::to_string(options_.vocab_size) + " tokens");
}

nlohmann::json Loader::State() const {
  return {{"consumed_samples", consumed_},         {"samples_per_epoch", sampler_.samples()},
          {kEndsKey, fingerprints_.ends},          {kMiddlesKey, fingerprints_.middles},
          {"seq_len", options_.seq_len},           {kPackingKey, NamePacking(options_.packing)},
          {"shuffle", sampler_.options().shuffle}, {"seed", sampler_.options().seed}};
}

Status Loader::LoadState(const nlohmann::json& state) {
  const nlohmann::json own = State();
  for (const auto& item : own.items()) {
    const auto saved = state.find(item.key());
    const bool is_newer = IsFingerprint(item.key()) ||
                          (item.key() == kPackingKey && options_.packing == Packing::kStream);
    if (is_newer && saved == state.end()) continue;
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
