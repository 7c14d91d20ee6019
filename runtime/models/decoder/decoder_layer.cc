#include "runtime/models/decoder/decoder_layer.h"

#include <ATen/TensorOperators.h>

#include <string>

#include "runtime/models/decoder/decoder_embedding.h"

namespace ds::models {

DecoderLayer::DecoderLayer(const DecoderSlice& slice, std::int64_t index,
                           const SharedTables& tables, const at::TensorOptions& options)
    : FamilyBlock(std::string(slice.spec().names.base) + "." + slice.spec().names.layers + "." +
                      std::to_string(index),
                  DescribeInit(slice.spec()), slice),
      sequence_(slice.sequence),
      norm_position_(slice.spec().norm_position),
      residual_(slice.spec().residual) {
  AddParts(slice, index, tables, options);
}

// The order of registration determines the order in the flat buffers.
void DecoderLayer::AddParts(const DecoderSlice& slice, std::int64_t index,
                            const SharedTables& tables, const at::TensorOptions& options) {
  const DecoderSpec& spec = slice.spec();
  const WeightNames& names = spec.names;
  const auto add_norm = [&](const char* name) {
    return RegisterAt(*this, {name}, MakeNorm(spec, spec.width, options));
  };
  const bool before =
      norm_position_ == NormPosition::kBefore || norm_position_ == NormPosition::kAround;
  const bool after =
      norm_position_ == NormPosition::kAfter || norm_position_ == NormPosition::kAround;
  const bool after_sum = norm_position_ == NormPosition::kAfterSum;
  if (before) attention_norms_.before = add_norm(names.attention_norm);
  attention_ = std::make_unique<DecoderAttention>(*this, slice, index, tables, options);
  if (after) attention_norms_.after = add_norm(names.attention_norm_after);
  if (after_sum) attention_norms_.after = add_norm(names.attention_norm);
  if (before && residual_ != Residual::kParallelOneNorm) {
    mlp_norms_.before = add_norm(names.mlp_norm);
  }
  if (spec.HasExperts(index)) {
    experts_ = std::make_unique<DecoderExperts>(*this, slice, options);
  } else {
    mlp_ = std::make_unique<DecoderMlp>(*this, slice, options);
  }
  if (after) mlp_norms_.after = add_norm(names.mlp_norm_after);
  if (after_sum) mlp_norms_.after = add_norm(names.mlp_norm);
}

template <typename Part>
at::Tensor DecoderLayer::Add(const Norms& norms, const at::Tensor& x, const Part& part) const {
  if (norm_position_ == NormPosition::kAfterSum) return norms.after->forward(x + part(x));
  const at::Tensor added = part(norms.before ? norms.before->forward(x) : x);
  return x + (norms.after ? norms.after->forward(added) : added);
}

Bundle DecoderLayer::forward(Bundle bundle) {
  KeepOwnTokens(sequence_, &bundle);
  const std::int64_t tokens = bundle.hidden.size(1);
  const std::int64_t kept = drop_ && is_training() ? drop_->kept : 0;
  if (kept <= 0 || kept >= tokens) return Run(std::move(bundle));
  const at::Tensor chosen =
      ChooseTokens(bundle.hidden.size(0), tokens, kept, bundle.random, bundle.hidden.device());
  Bundle seen = Run(KeepTokens(bundle, chosen));
  const at::Tensor positions = chosen.unsqueeze(-1).expand({-1, -1, seen.hidden.size(2)});
  bundle.hidden = bundle.hidden.scatter(1, positions, seen.hidden);
  bundle.extras = std::move(seen.extras);  // expert loads
  return bundle;
}

Bundle DecoderLayer::Run(Bundle bundle) const {
  const auto attend = [&](const at::Tensor& x) {
    return attention_->forward(x, bundle, is_training());
  };
  const auto feed = [&](const at::Tensor& x) {
    return mlp_ ? mlp_->forward(x, bundle, is_training())
                : experts_->forward(x, &bundle, is_training());
  };
  const at::Tensor x = bundle.hidden;
  if (residual_ == Residual::kSequential) {
    bundle.hidden = Add(mlp_norms_, Add(attention_norms_, x, attend), feed);
    return bundle;
  }
  const at::Tensor normed = attention_norms_.before->forward(x);
  const at::Tensor mixed = attend(normed);
  bundle.hidden = x + mixed + feed(mlp_norms_.before ? mlp_norms_.before->forward(x) : normed);
  return bundle;
}

}  // namespace ds::models
