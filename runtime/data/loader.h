#pragma once

// Loader: hands each rank its micro-batches in the defined order, and can be saved and restored.
//
// Sample i is tokens[i*S .. i*S+S], of which the first S are the inputs and the last S the labels,
// or made of whole documents (sample_plan.h). With micro-batch B, the m-th call of reader r of W
// takes places (m*W + r)*B + 0..B-1 of the stream, which is endless, of all samples or of those
// that are held out. Of several sources a blend says whose a place is (sampler.h); each has its
// samples in the order that it would have alone (sampler.h). Metrics of a curriculum make the
// stream of the samples of one source that steps may have (curriculum_order.h). With batches by
// tokens a place is one of these, with as many samples of one source as fit (token_batches.h).
//
// Threads: one thread per rank drives its loader.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/data/curriculum_order.h"
#include "runtime/data/loader_options.h"
#include "runtime/data/sample_set.h"
#include "runtime/data/sampler.h"
#include "runtime/data/token_batches.h"
#include "runtime/plan/data/token_source.h"

namespace ds::data {

// Whatever gives a rank its micro-batches, without end, and knows where it stands.
class BatchStream : public checkpoint::Stateful {
 public:
  // A failure leaves it where it was.
  virtual StatusOr<Batch> Next() = 0;
};

class Loader : public BatchStream {
 public:
  // Refuses sources as SampleSet::Create does, and metrics with several sources, without a sample
  // for the first step, or as FindDifficulties does; batches by tokens alike, as TokenBatches does.
  // Requires as many weights as sources, or none.
  static StatusOr<std::unique_ptr<Loader>> Create(std::vector<TokenSource> sources,
                                                  const LoaderOptions& options);
  static StatusOr<std::unique_ptr<Loader>> Create(TokenSource source, const LoaderOptions& options);

  // The next micro-batch of this rank. Fails as SampleSet::FillRow does.
  StatusOr<Batch> Next() override;

  const Blend& blend() const { return blend_; }
  // Nothing without metrics.
  const std::optional<CurriculumOrder>& curriculum() const { return curriculum_; }
  // Nothing unless batches are by tokens.
  const std::optional<TokenBatches>& batches() const { return batches_; }
  // Counts the samples of each source; in an epoch are as many as in all together.
  std::vector<std::int64_t> CountSamples() const;
  std::int64_t samples_per_epoch() const;
  // The same in places of the stream, of which a step has samples_per_step.
  std::int64_t places_per_epoch() const {
    return batches_ ? batches_->size() : samples_per_epoch();
  }
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
  Status OrderByMetrics();
  Status BatchByTokens();
  Batch MakeBatch(std::vector<SampleName> samples) const;
  // The samples of this rank's next batch.
  std::vector<SampleName> FindSamples();
  std::int64_t FirstPlace() const;  // of this rank's next batch

  std::vector<SampleSet> sets_;
  LoaderOptions options_;
  Blend blend_;
  std::vector<Sampler> samplers_;              // of each set
  std::optional<CurriculumOrder> curriculum_;  // in their place
  std::optional<TokenBatches> batches_;        // likewise
  std::int64_t consumed_ = 0;                  // places that all ranks together have been handed
};

}  // namespace ds::data
