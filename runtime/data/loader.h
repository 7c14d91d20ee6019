#pragma once

// Loader: gives each rank its micro-batches in the defined order. Its position can be saved and
// restored.
//
// Sample i is tokens[i*S .. i*S+S]: the first S are the inputs, the last S the labels.
// Alternatively samples are made of complete documents (sample_plan.h). With micro-batch B, the
// m-th call of reader r of W takes positions (m*W + r)*B + 0..B-1 of the stream. The stream is
// endless and covers all samples, or the held-out ones. With several sources a blend assigns each
// position to a source (sampler.h); each source keeps the sample order that it would have alone.
// Curriculum metrics restrict the stream to the eligible samples of a single source
// (curriculum_order.h). With batching by tokens a position is a micro-batch with as many samples of
// a single source as fit (token_batches.h).
//
// Threads: one thread per rank uses its loader.

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

// BatchStream: an endless source of a rank's micro-batches with a position.
class BatchStream : public checkpoint::Stateful {
 public:
  // Returns the next micro-batch. On failure the position does not change.
  virtual StatusOr<TokenBatch> Next() = 0;
};

class Loader : public BatchStream {
 public:
  // Returns the errors of SampleSet::Create, FindDifficulties and TokenBatches::Create. Also
  // rejects metrics or batching by tokens with several sources, and metrics without a sample for
  // the first step. Requires one weight per source, or none.
  static StatusOr<std::unique_ptr<Loader>> Create(std::vector<TokenSource> sources,
                                                  const LoaderOptions& options);
  static StatusOr<std::unique_ptr<Loader>> Create(TokenSource source, const LoaderOptions& options);

  // Returns this rank's next micro-batch. Returns the errors of SampleSet::FillRow.
  StatusOr<TokenBatch> Next() override;

  const Blend& blend() const { return blend_; }
  // Empty without metrics.
  const std::optional<CurriculumOrder>& curriculum() const { return curriculum_; }
  // Empty unless batches are made by tokens.
  const std::optional<TokenBatches>& batches() const { return batches_; }
  // Returns the number of samples of each source. An epoch has as many samples as all sources
  // together.
  std::vector<std::int64_t> CountSamples() const;
  std::int64_t samples_per_epoch() const;
  // Returns the epoch's length in positions of the stream. A step has samples_per_step positions.
  std::int64_t positions_per_epoch() const {
    return batches_ ? batches_->size() : samples_per_epoch();
  }
  // Returns the number of calls of Next() on each rank in one pass.
  std::int64_t batches_per_epoch() const;
  // Returns to the first position.
  void Restart() { consumed_ = 0; }
  // Reads this rank's batches of one pass and returns the number of their labels. Afterwards the
  // loader is at the first position. Returns the errors of Next.
  StatusOr<std::int64_t> CountLabels();

  // checkpoint::Stateful. The state is the position and a description of its stream. It is
  // independent of the number of ranks and the micro-batch. LoadState rejects a position in other
  // data (by the number of samples and the data's fingerprints, which older checkpoints lack),
  // another blend or another order.
  std::string_view state_name() const override { return "data"; }
  void AddShards(std::vector<checkpoint::TensorShard>*) override {}
  nlohmann::json State() const override;
  Status LoadState(const nlohmann::json& state) override;
  // Returns a state of a loader, moved to `position` of its stream.
  static nlohmann::json MoveState(nlohmann::json state, std::int64_t position);

 private:
  Loader(std::vector<SampleSet> sets, const LoaderOptions& options);
  Status OrderByMetrics();
  Status BatchByTokens();
  TokenBatch MakeBatch(std::vector<SampleName> samples) const;
  // Returns the samples of this rank's next batch.
  std::vector<SampleName> FindSamples();
  std::int64_t FirstPosition() const;  // of this rank's next batch

  std::vector<SampleSet> sets_;
  LoaderOptions options_;
  Blend blend_;
  std::vector<Sampler> samplers_;              // one per set
  std::optional<CurriculumOrder> curriculum_;  // replaces samplers_
  std::optional<TokenBatches> batches_;        // replaces samplers_
  std::int64_t consumed_ = 0;                  // positions handed out to all ranks together
};

}  // namespace ds::data
