#pragma once

// One transformer layer of a decoder.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/models/decoder/decoder_attention.h"
#include "runtime/models/decoder/decoder_experts.h"
#include "runtime/models/decoder/decoder_mlp.h"
#include "runtime/models/decoder/token_drop.h"
#include "runtime/models/initialize.h"
#include "runtime/models/layers/norms.h"

namespace ds::models {

class DecoderLayer : public FamilyBlock {
 public:
  // The layer with this index.
  DecoderLayer(const DecoderSlice& slice, std::int64_t index, const SharedTables& tables,
               const at::TensorOptions& options);

  Bundle forward(Bundle bundle) override;

  // While training it sees as many tokens of a sample as `drop` says (token_drop.h).
  void DropTokens(std::shared_ptr<const TokenDrop> drop) { drop_ = std::move(drop); }

 private:
  // The norms around attention or MLP; null where there is none.
  struct Norms {
    std::shared_ptr<Norm> before, behind;
  };
  // The layer on all tokens that the bundle has.
  Bundle Run(Bundle bundle) const;
  void AddParts(const DecoderSlice& slice, std::int64_t index, const SharedTables& tables,
                const at::TensorOptions& options);
  // x and what `part` makes of it, in turn.
  template <typename Part>
  at::Tensor Add(const Norms& norms, const at::Tensor& x, const Part& part) const;

  sequence_parallel::Group sequence_;
  NormPlace place_;
  Residual residual_;
  Norms attention_norms_, mlp_norms_;
  std::unique_ptr<DecoderAttention> attention_;
  // One of the two.
  std::unique_ptr<DecoderMlp> mlp_;
  std::unique_ptr<DecoderExperts> experts_;
  std::shared_ptr<const TokenDrop> drop_;  // null: it sees all tokens
};

}  // namespace ds::models
