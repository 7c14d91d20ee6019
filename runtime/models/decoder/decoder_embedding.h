#pragma once

// DecoderEmbedding: the first block of a decoder.

#include <memory>
#include <optional>
#include <string>

#include "runtime/models/decoder/family_block.h"
#include "runtime/models/layers/layers.h"
#include "runtime/models/layers/norms.h"

namespace ds::models {

// Returns a decoder's token embedding table, unmaterialised and not yet registered in a block.
std::shared_ptr<Embedding> MakeTokenTable(const DecoderSlice& slice,
                                          const at::TensorOptions& options);
// Returns the range of its elements that start at 0: the row of the padding token.
FirstValue::Zeros FindPaddingZeros(const DecoderSpec& spec);

// Reduces the batch to this sequence rank's part of each sample, and records its position in the
// bundle. At the start of a pipeline stage the batch holds full samples; therefore each block calls
// this. Does nothing if hidden states and batch already have the same number of tokens. "documents"
// stays complete because attention needs the documents of all tokens.
void KeepOwnTokens(const sequence_parallel::SequenceGroup& sequence, Bundle* bundle);

// Embedding tables of tokens and, if the model learns them, of positions.
class DecoderEmbedding : public FamilyBlock {
 public:
  DecoderEmbedding(const DecoderSlice& slice, const at::TensorOptions& options);

  // Throws if the batch has a tensor that no language model uses.
  Bundle forward(Bundle bundle) override;
  FirstValue DescribeFirstValue(const std::string& name, std::int64_t dimensions) const override;

  // The backward pass needs only a table's shape, but a norm's weight.
  bool backward_reads_parameters() const override { return norm_ != nullptr; }

  std::shared_ptr<Embedding> tokens() const { return tokens_; }

  // Enables NEFTune (https://arxiv.org/abs/2310.05914): in training, adds uniform noise of up to
  // alpha / sqrt(tokens of a sample * width) to the token embeddings, as transformers does.
  void AddNoise(double alpha) { noise_alpha_ = alpha; }

 private:
  at::Tensor MakeNoisy(const at::Tensor& x, const Bundle& bundle) const;

  sequence_parallel::SequenceGroup sequence_;
  std::string tokens_name_;
  FirstValue::Zeros padding_;
  double scale_;
  std::int64_t first_position_;
  double dropout_;
  double noise_alpha_ = 0.0;
  std::shared_ptr<Embedding> tokens_;
  std::shared_ptr<Embedding> positions_;  // null: no learned positions
  std::shared_ptr<Norm> norm_;            // null if there is none
};

// Calls AddNoise on the embedding, if this list holds it.
void AddEmbeddingNoise(const BlockList& model, double alpha);

}  // namespace ds::models
