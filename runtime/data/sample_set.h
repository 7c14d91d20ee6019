#pragma once

// SampleSet: the samples of one source of tokens that a loader takes: those that are trained on, or
// those that are held out. Where documents are known, none is learnt from another.
//
// Threads: const functions may be called concurrently.

#include <cstdint>
#include <span>

#include "runtime/data/loader_options.h"
#include "runtime/plan/data/sample_plan.h"
#include "runtime/plan/data/token_source.h"

namespace ds::data {

class SampleSet {
 public:
  // Refuses data too short for one sample, and packing by documents where they are not known.
  static StatusOr<SampleSet> Create(TokenSource source, const LoaderOptions& options);

  std::int64_t size() const { return size_; }
  // Counts those that are trained on and those that are held out.
  std::int64_t size_with_held_out() const { return plan_.samples(); }
  bool has_documents() const { return source_.has_documents(); }
  const Fingerprints& fingerprints() const { return fingerprints_; }
  std::vector<std::filesystem::path> ListFiles() const { return source_.ListFiles(); }
  // Says where its first sample stands among those that the source makes.
  std::int64_t first() const { return first_; }

  // Fills a row of the batch with a sample below size(), which fits in; what it does not fill is
  // padding without labels. Fails on a token id outside the vocabulary (naming file and offset) and
  // on a file that cannot be read any more.
  Status FillRow(std::int64_t sample, std::int64_t row, Batch* batch) const;

  // The tokens of a sample below size() that are inputs, without padding, and how many those are.
  // Fails as FillRow does.
  Status ReadInputs(std::int64_t sample, std::vector<std::int64_t>* tokens) const;
  std::int64_t CountInputs(std::int64_t sample) const { return plan_.At(first_ + sample).count; }

 private:
  SampleSet(TokenSource source, SamplePlan plan, SamplePart part, std::int64_t vocab_size)
      : source_(std::move(source)),
        plan_(std::move(plan)),
        vocab_size_(vocab_size),
        first_(part.first),
        size_(part.count) {}
  // Fills in the row's documents and takes out the labels that are not learnt.
  Status MarkDocuments(SampleRange range, std::int64_t row, Batch* batch) const;

  TokenSource source_;
  Fingerprints fingerprints_;
  SamplePlan plan_;
  std::int64_t vocab_size_;
  std::int64_t first_, size_;  // of the plan's samples
};

}  // namespace ds::data
