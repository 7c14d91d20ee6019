#pragma once

// Loader: hands each rank its micro-batches in the defined order, and can be saved and restored.
//
// Sample i is tokens[i*S .. i*S+S], of which the first S are the inputs and the last S the labels,
// or made of whole documents (sample_plan.h). With micro-batch B, the m-th call of reader r of W
// takes places (m*W + r)*B + 0..B-1 of the stream, which is endless, of all samples or of those
// that are held out. Of several sources a blend says whose a place is (sampler.h); each has its
// samples in the order that it would have alone (sampler.h).
//
// Threads: one thread per rank drives its loader.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/data/loader_options.h"
#include "runtime/data/sample_plan.h"
#include "runtime/data/sampler.h"
#include "runtime/data/token_source.h"

namespace ds::data {

// SampleSet: the samples of one source of tokens that a loader takes: those that are trained on, or
// those that are held out. Where documents are known, none is learnt from another.
//
// Threads: const functions may be called concurrently.

class SampleSet {
 public:
  // Refuses data too short for one sample, and packing by documents where they are not known.
  static StatusOr<SampleSet> Create(TokenSource source, const LoaderOptions& options);

  std::int64_t size() const { return size_; }
  bool has_documents() const { return source_.has_documents(); }
  const Fingerprints& fingerprints() const { return fingerprints_; }

  // Fills a row of the batch with a sample below size(); what it does not fill is padding without
  // labels. Fails on a token id outside the vocabulary (naming file and offset) and on a file that
  // cannot be read any more.
  Status FillRow(std::int64_t sample, std::int64_t row, Batch* batch) const;

 private:
  SampleSet(TokenSource source, SamplePlan plan, const LoaderOptions& options)
      : source_(std::move(source)),
        plan_(std::move(plan)),
        seq_len_(options.seq_len),
        vocab_size_(options.vocab_size) {}
  Status ChoosePart(const LoaderOptions& options);
  Status CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first) const;
  // Fills in the row's documents and takes out the labels that are not learnt.
  Status MarkDocuments(SampleRange range, std::int64_t row, Batch* batch) const;

  TokenSource source_;
  Fingerprints fingerprints_;
  SamplePlan plan_;
  std::int64_t seq_len_, vocab_size_;
  std::int64_t first_ = 0, size_ = 0;  // of the plan's samples
};

// Whatever gives a rank its micro-batches, without end, and knows where it stands.
class BatchStream : public checkpoint::Stateful {
 public:
  // A failure leaves it where it was.
  virtual StatusOr<Batch> Next() = 0;
};

class Loader : public BatchStream {
 public:
  // Refuses sources as SampleSet::Create does. Requires as many weights as sources, or none.
  static StatusOr<std::unique_ptr<Loader>> Create(std::vector<TokenSource> sources,
                                                  const LoaderOptions& options);
  static StatusOr<std::unique_ptr<Loader>> Create(TokenSource source, const LoaderOptions& options);

  // The next micro-batch of this rank. Fails as SampleSet::FillRow does.
  StatusOr<Batch> Next() override;

  const Blend& blend() const { return blend_; }
  // Counts the samples of each source; in an epoch are as many as in all together.
  std::vector<std::int64_t> CountSamples() const;
  std::int64_t samples_per_epoch() const;
  // Calls of Next() on each rank that come to the end of a pass.
  std::int64_t batches_per_epoch() const;
  // Goes back to the first place.
  void Restart() { consumed_ = 0; }
  // Reads this rank's batches of a pass and counts their labels; stands at the first place then.
  // Fails as Next does.
  StatusOr<std::int64_t> CountLabels();

  // checkpoint::Stateful. State is the position and what it is a position in; it is free of the
  // number of ranks and the micro-batch. LoadState refuses a position in other data (by the number
  // of samples and the data's fingerprints, which older checkpoints lack), another blend or another
  // order.
  std::string_view state_name() const override { return "data"; }
  void AddShards(std::vector<checkpoint::TensorShard>*) override {}
  nlohmann::json State() const override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  Loader(std::vector<SampleSet> sets, const LoaderOptions& options);
  Batch MakeBatch() const;

  std::vector<SampleSet> sets_;
  LoaderOptions options_;
  Blend blend_;
  std::vector<Sampler> samplers_;  // of each set
  std::int64_t consumed_ = 0;      // samples that all ranks together have been handed
};

}  // namespace ds::data
