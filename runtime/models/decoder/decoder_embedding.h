#pragma once

// The first block of a decoder.

#include <memory>
#include <optional>
#include <string>

#include "runtime/models/initialize.h"
#include "runtime/models/layers/layers.h"
#include "runtime/models/layers/norms.h"

namespace ds::models {

// The table of tokens of a decoder, unmaterialised and of no block yet.
std::shared_ptr<Embedding> MakeTokenTable(const DecoderSlice& slice,
                                          const at::TensorOptions& options);
// The elements of it that start at 0: the row of the padding.
FirstValue::Zeros FindPaddingZeros(const DecoderSpec& spec);

// Leaves of a batch this sequence rank's part of the samples, and says where that stands. Where a
// stage of a pipeline begins it is whole, so each block whose hidden states are of fewer tokens
// than the batch calls this.
void KeepOwnTokens(const sequence_parallel::Group& sequence, Bundle* bundle);

// Tables of tokens and, where they are learnt, positions.
class DecoderEmbedding : public FamilyBlock {
 public:
  DecoderEmbedding(const DecoderSlice& slice, const at::TensorOptions& options);

  // Refuses a batch with tensors that no language model takes.
  Bundle forward(Bundle bundle) override;
  FirstValue DescribeFirstValue(const std::string& name, std::int64_t dimensions) const override;

  // A table gives its shape to the backward pass, a norm its weight.
  bool backward_reads_parameters() const override { return norm_ != nullptr; }

  std::shared_ptr<Embedding> tokens() const { return tokens_; }

  // NEFTune (https://arxiv.org/abs/2310.05914): while training, the rows of the table of tokens get
  // noise of up to alpha / sqrt(tokens of a sample * width), as transformers adds it.
  void AddNoise(double alpha) { noise_alpha_ = alpha; }

 private:
  at::Tensor MakeNoisy(const at::Tensor& x, const Bundle& bundle) const;

  sequence_parallel::Group sequence_;
  std::string tokens_name_;
  FirstValue::Zeros padding_;
  double scale_;
  std::int64_t first_position_;
  double dropout_;
  double noise_alpha_ = 0.0;
  std::shared_ptr<Embedding> tokens_;
  std::shared_ptr<Embedding> positions_;  // null where they are not learnt
  std::shared_ptr<Norm> norm_;            // null without
};

// Calls AddNoise of the embedding, where this list has it.
void AddEmbeddingNoise(const BlockList& model, double alpha);

}  // namespace ds::models
