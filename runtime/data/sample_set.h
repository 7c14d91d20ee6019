#pragma once

// SampleSet: the samples of one token source that a loader uses, either for training or held out.
// With known documents, tokens of one document are never predicted from another.
//
// Thread-safe for const functions.

#include <cstdint>
#include <span>

#include "runtime/data/loader_options.h"
#include "runtime/plan/data/sample_plan.h"
#include "runtime/plan/data/token_source.h"

namespace ds::data {

class SampleSet {
 public:
  // Returns an error for data too short for one sample, and for packing by documents if they are
  // not known.
  static StatusOr<SampleSet> Create(TokenSource source, const LoaderOptions& options);

  std::int64_t size() const { return size_; }
  // Returns the number of training and held-out samples together.
  std::int64_t size_with_held_out() const { return plan_.samples(); }
  bool has_documents() const { return source_.has_documents(); }
  const Fingerprints& fingerprints() const { return fingerprints_; }
  std::vector<std::filesystem::path> ListFiles() const { return source_.ListFiles(); }
  // Returns the index of the first sample of this set among all samples of the source.
  std::int64_t first() const { return first_; }

  // Fills a row of the batch with a sample below size(), which must fit. The rest of the row is
  // padding without labels. Returns an error for a token id outside the vocabulary (naming file and
  // offset) and for a file that can no longer be read.
  Status FillRow(std::int64_t sample, std::int64_t row, TokenBatch* batch) const;

  // Reads the input tokens of a sample below size(), without padding. CountInputs returns their
  // number. Returns the errors of FillRow.
  Status ReadInputs(std::int64_t sample, std::vector<std::int64_t>* tokens) const;
  std::int64_t CountInputs(std::int64_t sample) const { return plan_.At(first_ + sample).count; }

 private:
  SampleSet(TokenSource source, SamplePlan plan, ChosenSamples part, std::int64_t vocab_size)
      : source_(std::move(source)),
        plan_(std::move(plan)),
        vocab_size_(vocab_size),
        first_(part.first),
        size_(part.count) {}
  // Fills in the row's documents and removes labels that do not contribute to the loss.
  Status MarkDocuments(SampleRange range, std::int64_t row, TokenBatch* batch) const;

  TokenSource source_;
  Fingerprints fingerprints_;
  SamplePlan plan_;
  std::int64_t vocab_size_;
  std::int64_t first_, size_;  // range in the plan's samples
};

}  // namespace ds::data
