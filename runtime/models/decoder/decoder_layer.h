#pragma once

// DecoderLayer: one transformer layer of a decoder.

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
  // `index` is the layer's index in the model.
  DecoderLayer(const DecoderSlice& slice, std::int64_t index, const SharedTables& tables,
               const at::TensorOptions& options);

  Bundle forward(Bundle bundle) override;

  // In training, the layer processes only drop->kept tokens of each sample (token_drop.h).
  void DropTokens(std::shared_ptr<const TokenDrop> drop) { drop_ = std::move(drop); }

 private:
  // The norms before and after attention or MLP; null if there is none.
  struct Norms {
    std::shared_ptr<Norm> before, after;
  };
  // Runs the layer on all tokens in the bundle.
  Bundle Run(Bundle bundle) const;
  void AddParts(const DecoderSlice& slice, std::int64_t index, const SharedTables& tables,
                const at::TensorOptions& options);
  // Returns x plus the result of `part`, with the norms in the configured positions.
  template <typename Part>
  at::Tensor Add(const Norms& norms, const at::Tensor& x, const Part& part) const;

  sequence_parallel::SequenceGroup sequence_;
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
