#include "runtime/models/decoder_embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "runtime/models/lm_head.h"
#include "runtime/models/token_places.h"

namespace ds::models {

DecoderEmbedding::DecoderEmbedding(const DecoderSpec& spec, const at::TensorOptions& options)
    : FamilyBlock(spec.names.base, DescribeInit(spec)),
      tokens_name_(spec.names.tokens),
      padding_(spec.padding_token),
      scale_(spec.scales_embedding ? std::sqrt(static_cast<double>(spec.width)) : 1.0),
      first_position_(spec.first_position),
      dropout_(spec.embedding_dropout) {
  const Embedding::Shape tokens{spec.vocabulary, spec.width, spec.padding_token};
  tokens_ = RegisterAt(*this, {spec.names.tokens}, std::make_shared<Embedding>(tokens, options));
  if (spec.positions == Positions::kLearned) {
    const Embedding::Shape positions{spec.max_positions + spec.first_position, spec.width};
    positions_ =
        RegisterAt(*this, {spec.names.positions}, std::make_shared<Embedding>(positions, options));
  }
  if (spec.embedding_norm) {
    norm_ = RegisterAt(*this, {spec.names.embedding_norm}, MakeNorm(spec, spec.width, options));
  }
}

Bundle DecoderEmbedding::forward(Bundle bundle) {
  CheckNames(bundle.batch, kLanguageModelBatch);
  at::Tensor x = tokens_->forward(bundle.tensor("tokens"));
  // The factor has x's dtype, as transformers' has.
  if (scale_ != 1.0) x = x * at::scalar_tensor(scale_, x.options());
  if (positions_) x = x + positions_->forward(FindPositions(bundle.batch) + first_position_);
  if (norm_) x = norm_->forward(x);
  bundle.hidden = Dropout(x, {.probability = is_training() ? dropout_ : 0.0,
                              .place = bundle.random,
                              .site = DropoutSite::kEmbedding});
  return bundle;
}

FirstValue DecoderEmbedding::DescribeFirstValue(const std::string& name,
                                                std::int64_t dimensions) const {
  FirstValue value = FamilyBlock::DescribeFirstValue(name, dimensions);
  if (padding_ && name == tokens_name_ + ".weight") {
    const std::int64_t width = tokens_->weight().size(1);
    value.zeros = {.first = *padding_ * width, .count = width};
  }
  return value;
}

}  // namespace ds::models
