#include "runtime/models/decoder/decoder_embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>
#include <vector>

#include "runtime/models/decoder/lm_head.h"
#include "runtime/models/layers/token_positions.h"

namespace ds::models {

std::shared_ptr<Embedding> MakeTokenTable(const DecoderSlice& slice,
                                          const at::TensorOptions& options) {
  const DecoderSpec& spec = slice.spec();
  const Embedding::Shape shape{.rows = spec.vocabulary,
                               .width = spec.width,
                               .padding = spec.padding_token,
                               .group = slice.group,
                               .first_row = slice.plan->vocabulary().first,
                               .all_rows = slice.plan->full_vocabulary()};
  return std::make_shared<Embedding>(shape, options);
}

FirstValue::Zeros FindPaddingZeros(const DecoderSpec& spec) {
  if (!spec.padding_token) return {};
  return {.first = *spec.padding_token * spec.width, .count = spec.width};
}

DecoderEmbedding::DecoderEmbedding(const DecoderSlice& slice, const at::TensorOptions& options)
    : FamilyBlock(slice.spec().names.base, DescribeInit(slice.spec()), slice),
      sequence_(slice.sequence),
      tokens_name_(slice.spec().names.tokens),
      padding_(FindPaddingZeros(slice.spec())),
      scale_(slice.spec().scales_embedding ? std::sqrt(static_cast<double>(slice.spec().width))
                                           : 1.0),
      first_position_(slice.spec().first_position),
      dropout_(slice.spec().embedding_dropout) {
  const DecoderSpec& spec = slice.spec();
  tokens_ = RegisterAt(*this, {spec.names.tokens}, MakeTokenTable(slice, options));
  if (spec.positions == Positions::kLearned) {
    const Embedding::Shape positions{.rows = spec.max_positions + spec.first_position,
                                     .width = spec.width};
    positions_ =
        RegisterAt(*this, {spec.names.positions}, std::make_shared<Embedding>(positions, options));
  }
  if (spec.embedding_norm) {
    norm_ = RegisterAt(*this, {spec.names.embedding_norm}, MakeNorm(spec, spec.width, options));
  }
}

void KeepOwnTokens(const sequence_parallel::SequenceGroup& sequence, Bundle* bundle) {
  if (sequence.size() == 1) return;
  Batch& batch = bundle->batch;
  const at::Tensor tokens = bundle->tensor("tokens");
  if (bundle->hidden.defined() && bundle->hidden.size(1) == tokens.size(1)) return;
  const std::int64_t all = tokens.size(1), own = all / sequence.size();
  TORCH_CHECK(own * sequence.size() == all, sequence.size(), " sequence ranks cannot share ", all,
              " tokens of a sample");
  if (!FindTensor(batch, "positions").defined()) {
    batch["positions"] = FindPositions(batch).expand_as(tokens);
  }
  const auto ranges = sequence_parallel::FindTokens(sequence.kind(), all, sequence.rank(),
                                                    sequence.size(), sequence.chunk());
  for (auto& [name, tensor] : batch) {
    if (name == "documents") continue;  // used only by attention, which covers all tokens
    std::vector<at::Tensor> parts;
    for (const auto& range : ranges) parts.push_back(tensor.narrow(1, range.first, range.count));
    tensor = at::cat(parts, /*dim=*/1);
  }
  RandomPosition& random = bundle->random;
  const std::int64_t sample = random.first_position;
  random.first_position = sample + ranges.front().first;
  if (ranges.size() == 1) return;
  random.stretch = ranges.front().count;
  random.stride = ranges[1].first - ranges[0].first;
  random.before_last = own - ranges.back().count;
  random.last_position = sample + ranges.back().first;
}

// transformers derives the range from the longest sample of the micro-batch.
at::Tensor DecoderEmbedding::MakeNoisy(const at::Tensor& x, const Bundle& bundle) const {
  const std::int64_t tokens =
      bundle.longest_sample > 0 ? bundle.longest_sample : x.size(1) * sequence_.size();
  const double range = noise_alpha_ / std::sqrt(static_cast<double>(tokens * x.size(2)));
  return x + UniformNoise(x.sizes(),
                          {.origin = bundle.random, .site = DropoutSite::kEmbeddingNoise}, range,
                          x.options());
}

Bundle DecoderEmbedding::forward(Bundle bundle) {
  CheckNames(bundle.batch, kLanguageModelBatch);
  KeepOwnTokens(sequence_, &bundle);
  at::Tensor x = tokens_->forward(bundle.tensor("tokens"));
  // The factor has x's dtype, as in transformers.
  if (scale_ != 1.0) x = x * at::scalar_tensor(scale_, x.options());
  if (noise_alpha_ > 0.0 && is_training()) x = MakeNoisy(x, bundle);
  if (positions_) x = x + positions_->forward(FindPositions(bundle.batch) + first_position_);
  if (norm_) x = norm_->forward(x);
  bundle.hidden = Dropout(x, {.probability = is_training() ? dropout_ : 0.0,
                              .origin = bundle.random,
                              .site = DropoutSite::kEmbedding});
  return bundle;
}

FirstValue DecoderEmbedding::DescribeFirstValue(const std::string& name,
                                                std::int64_t dimensions) const {
  FirstValue value = FamilyBlock::DescribeFirstValue(name, dimensions);
  if (name == tokens_name_ + ".weight") value.zeros = padding_;
  return value;
}

void AddEmbeddingNoise(const BlockList& model, double alpha) {
  if (auto* const embedding = dynamic_cast<DecoderEmbedding*>(model.blocks().front().get())) {
    embedding->AddNoise(alpha);
  }
}

}  // namespace ds::models
