#include "runtime/data/sample_set.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "runtime/data/longest_run.h"

namespace ds::data {
namespace {

constexpr std::int64_t kPadding = 0;  // any id: padding has no labels

}  // namespace

StatusOr<SampleSet> SampleSet::Create(TokenSource source, const LoaderOptions& options) {
  DS_ASSIGN_OR_RETURN(SamplePlan plan, PlanSamples(source, options.packing, options.seq_len));
  DS_RETURN_IF_ERROR(CheckHasSamples(plan, source.size(), options.seq_len));
  DS_ASSIGN_OR_RETURN(const ChosenSamples part,
                      ChooseSamples(plan, options.held_out, options.takes_held_out));
  SampleSet set(std::move(source), std::move(plan), part, options.vocab_size);
  DS_ASSIGN_OR_RETURN(set.fingerprints_, set.source_.TakeFingerprints());
  return set;
}

Status SampleSet::FillRow(std::int64_t sample, std::int64_t row, TokenBatch* batch) const {
  const SampleRange range = plan_.At(first_ + sample);
  const std::int64_t length = batch->inputs.size(1);
  batch->lengths.resize(static_cast<std::size_t>(batch->inputs.size(0)));
  batch->lengths[static_cast<std::size_t>(row)] = range.count;
  const std::int64_t readable = std::min(range.count + 1, source_.size() - range.first);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(readable));
  DS_RETURN_IF_ERROR(source_.Read(range.first, tokens));
  DS_RETURN_IF_ERROR(source_.CheckTokens(tokens, range.first, vocab_size_));
  auto* const inputs = batch->inputs.mutable_data_ptr<std::int64_t>() + row * length;
  auto* const labels = batch->labels.mutable_data_ptr<std::int64_t>() + row * length;
  std::fill(std::copy_n(tokens.begin(), range.count, inputs), inputs + length, kPadding);
  std::fill(std::copy(tokens.begin() + 1, tokens.end(), labels), labels + length, kIgnoredLabel);
  if (has_documents()) return MarkDocuments(range, row, batch);
  if (batch->documents.defined()) batch->documents[row].fill_(0);
  batch->longest = std::max(batch->longest, range.count);
  return OkStatus();
}

Status SampleSet::ReadInputs(std::int64_t sample, std::vector<std::int64_t>* tokens) const {
  const SampleRange range = plan_.At(first_ + sample);
  tokens->resize(static_cast<std::size_t>(range.count));
  DS_RETURN_IF_ERROR(source_.Read(range.first, *tokens));
  return source_.CheckTokens(*tokens, range.first, vocab_size_);
}

// Padding belongs to the last document. Its tokens precede the padding and do not attend to it, so
// no mask is needed.
Status SampleSet::MarkDocuments(SampleRange range, std::int64_t row, TokenBatch* batch) const {
  const std::int64_t length = batch->inputs.size(1);
  const std::int64_t readable = std::min(range.count + 1, source_.size() - range.first);
  std::vector<std::int64_t> documents(static_cast<std::size_t>(readable));
  std::vector<std::int64_t> in_loss(documents.size());
  DS_RETURN_IF_ERROR(source_.ReadDocuments(range.first, documents));
  DS_RETURN_IF_ERROR(source_.ReadLossMask(range.first, in_loss));
  auto* const numbers = batch->documents.mutable_data_ptr<std::int64_t>() + row * length;
  const auto last = static_cast<std::size_t>(range.count) - 1;
  std::fill(std::copy_n(documents.begin(), range.count, numbers), numbers + length,
            documents[last]);
  const std::span<const std::int64_t> own(numbers, static_cast<std::size_t>(range.count));
  batch->longest = std::max(batch->longest, LongestRun(own));
  auto* const labels = batch->labels.mutable_data_ptr<std::int64_t>() + row * length;
  for (std::size_t i = 1; i < documents.size(); ++i) {
    if (documents[i] != documents[i - 1] || in_loss[i] == 0) labels[i - 1] = kIgnoredLabel;
  }
  return OkStatus();
}

}  // namespace ds::data
