#pragma once

// Loader: hands each rank its micro-batches in the defined order, and can be saved and restored.
//
// Sample i is tokens[i*S .. i*S+S], of which the first S are the inputs and the last S the labels,
// or made of whole documents (sample_plan.h). With micro-batch B, the m-th call of reader r of W
// takes places (m*W + r)*B + 0..B-1 of the stream (sampler.h), which is endless, of all samples or
// of those that are held out. Where documents are known, none is learnt from another.
//
// Threads: one thread per rank drives its loader.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/data/sample_plan.h"
#include "runtime/data/sampler.h"
#include "runtime/data/token_source.h"
#include "runtime/topology/mesh.h"

namespace ds::data {

// A label that is not learnt: of a prompt, or the first token of a document, which follows nothing.
inline constexpr std::int64_t kIgnoredLabel = -100;

// One micro-batch of next-token prediction.
struct Batch {
  at::Tensor inputs;        // [B, S] int64, CPU, contiguous
  at::Tensor labels;        // [B, S] int64: the inputs shifted by one token, or kIgnoredLabel
  at::Tensor documents;     // [B, S] int64, a sample's counted from 0; undefined: one a sample
  std::int64_t tokens = 0;  // B * S
};

struct LoaderOptions {
  std::int64_t micro_batch = 1;  // B
  std::int64_t seq_len = 256;    // S
  std::int64_t vocab_size = 0;   // ids outside are refused
  Packing packing = Packing::kStream;
  topology::Member reader;  // among the ranks that have samples of their own
  Sampler::Options order;
  double held_out = 0.0;  // the share of the samples, from the last on, that is not trained on
  bool takes_held_out = false;  // it reads those, and no others
  // The stream is one pass: places behind it are samples of which nothing is learnt.
  bool once = false;
  bool pinned = false;  // batches lie in page-locked memory, from where copies to a GPU do not wait
};

// Whatever gives a rank its micro-batches, without end, and knows where it stands.
class BatchStream : public checkpoint::Stateful {
 public:
  // A failure leaves it where it was.
  virtual StatusOr<Batch> Next() = 0;
};

class Loader : public BatchStream {
 public:
  // Refuses data too short for one sample, and packing by documents where they are not known.
  static StatusOr<std::unique_ptr<Loader>> Create(TokenSource source, const LoaderOptions& options);

  // The next micro-batch of this rank. Fails on a token id outside the vocabulary (naming file and
  // offset) and on a file that cannot be read any more.
  StatusOr<Batch> Next() override;

  std::int64_t samples_per_epoch() const { return sampler_.samples(); }
  // Calls of Next() on each rank that come to the end of a pass.
  std::int64_t batches_per_epoch() const;
  // Goes back to the first place.
  void Restart() { consumed_ = 0; }

  // checkpoint::Stateful. State is the position and what it is a position in; it is free of the
  // number of ranks and the micro-batch. LoadState refuses a position in other data (by the number
  // of samples and the data's fingerprints, which older checkpoints lack) or another order.
  std::string_view state_name() const override { return "data"; }
  void AddShards(std::vector<checkpoint::TensorShard>*) override {}
  nlohmann::json State() const override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  // Samples [first, first + count) of the plan's.
  struct Part {
    std::int64_t first = 0, count = 0;
  };
  static StatusOr<Part> ChoosePart(std::int64_t samples, const LoaderOptions& options);
  Loader(TokenSource source, const LoaderOptions& options, SamplePlan plan, Part part,
         const Fingerprints& fingerprints)
      : source_(std::move(source)),
        fingerprints_(fingerprints),
        options_(options),
        plan_(std::move(plan)),
        first_sample_(part.first),
        sampler_(part.count, options.order) {}
  Status CheckTokens(std::span<const std::int64_t> tokens, std::int64_t first) const;
  // Fills a row of the batch with a sample; what it does not fill is padding without labels.
  Status FillRow(SampleRange range, std::int64_t row, Batch* batch) const;
  // Fills in the row's documents and takes out the labels that are not learnt.
  Status MarkDocuments(SampleRange range, std::int64_t row, Batch* batch) const;

  TokenSource source_;
  Fingerprints fingerprints_;
  LoaderOptions options_;
  SamplePlan plan_;
  std::int64_t first_sample_;
  Sampler sampler_;
  std::int64_t consumed_ = 0;  // samples that all ranks together have been handed
};

}  // namespace ds::data
