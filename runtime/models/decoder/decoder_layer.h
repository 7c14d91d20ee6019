#pragma once

// DecoderLayer: one transformer layer of a decoder: attention and an MLP or experts, each with
// its norms and its residual connection.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/models/decoder/decoder_attention.h"
#include "runtime/models/decoder/decoder_experts.h"
#include "runtime/models/decoder/decoder_mlp.h"
#include "runtime/models/decoder/family_block.h"
#include "runtime/models/decoder/token_drop.h"
#include "runtime/models/layers/norms.h"

namespace ds::models {

class DecoderLayer : public FamilyBlock {
 public:
  // `index` is the layer's index in the model. All layers of the model share `tables`.
  DecoderLayer(const DecoderSlice& slice, std::int64_t index, const SharedTables& tables,
               const at::TensorOptions& options);

  Bundle forward(Bundle bundle) override;

  // Makes the layer drop tokens: in training it processes only drop->kept tokens of each sample,
  // and the others skip it (token_drop.h). The caller may change drop->kept before each step.
  void DropTokens(std::shared_ptr<const TokenDrop> drop) { drop_ = std::move(drop); }

 private:
  // The norms before and after attention or the MLP (NormPosition); null if there is none. With
  // kAfterSum, `after` is applied to the sum.
  struct Norms {
    std::shared_ptr<Norm> before, after;
  };
  // Runs the layer on all tokens in the bundle. If tokens are dropped, it holds the kept ones only.
  Bundle Run(Bundle bundle) const;
  // Creates and registers the norms, the attention, and the MLP or the experts.
  void AddParts(const DecoderSlice& slice, std::int64_t index, const SharedTables& tables,
                const at::TensorOptions& options);
  // Adds one part to the residual stream x: returns x + part(x), with the norms in the configured
  // positions. `part` is attention or the MLP.
  template <typename Part>
  at::Tensor Add(const Norms& norms, const at::Tensor& x, const Part& part) const;

  sequence_parallel::SequenceGroup sequence_;  // ranks that have parts of the same samples
  NormPosition norm_position_;
  Residual residual_;
  Norms attention_norms_, mlp_norms_;
  std::unique_ptr<DecoderAttention> attention_;
  // Exactly one of the two is set.
  std::unique_ptr<DecoderMlp> mlp_;
  std::unique_ptr<DecoderExperts> experts_;
  std::shared_ptr<const TokenDrop> drop_;  // null: the layer processes all tokens
};

}  // namespace ds::models
