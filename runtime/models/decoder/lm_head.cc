#include "runtime/models/decoder/lm_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>

#include <utility>

#include "runtime/models/decoder/decoder_embedding.h"
#include "runtime/models/decoder/decoder_experts.h"
#include "runtime/models/decoder/family_block.h"
#include "runtime/models/kernels/matmul.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/models/layers/norms.h"

namespace ds::models {
namespace {

// Returns the labels, with masked ones replaced by kIgnoredLabel.
at::Tensor FindLabels(const Bundle& bundle) {
  const at::Tensor& labels = bundle.tensor("labels");
  const at::Tensor& mask = bundle.tensor("mask");
  if (!labels.defined() || !mask.defined()) return labels;
  TORCH_CHECK(mask.sizes() == labels.sizes(), "the batch's mask has the shape ", mask.sizes(),
              ", its labels have ", labels.sizes());
  return labels.masked_fill(mask.eq(0), kIgnoredLabel);
}

LabelRange FindRange(const Bundle& bundle, const at::Tensor& labels) {
  const auto& known = bundle.measured_labels;
  return known && known->labels.is_same(labels) ? known->range : MeasureLabels(labels);
}

class LmHead : public FamilyBlock {
 public:
  LmHead(const DecoderSlice& slice, std::shared_ptr<Embedding> embedding,
         const at::TensorOptions& options)
      : FamilyBlock("", DescribeInit(slice.spec()), slice),
        sequence_(slice.sequence),
        embedding_(std::move(embedding)),
        vocabulary_{.group = slice.group,
                    .first = slice.plan->vocabulary().first,
                    .all = slice.plan->full_vocabulary()},
        soft_cap_(slice.spec().logit_soft_cap),
        experts_per_token_(slice.spec().experts_per_token),
        balance_scale_(slice.spec().balances_experts ? slice.spec().balance_loss_scale : 0.0),
        table_name_(slice.NameTokenTable()),
        padding_(FindPaddingZeros(slice.spec())) {
    const DecoderSpec& spec = slice.spec();
    if (spec.final_norm) {
      norm_ = RegisterAt(*this, {spec.names.base, spec.names.final_norm},
                         MakeNorm(spec, spec.width, options));
    }
    if (!spec.tied_head) {
      const Product::Shape shape{.in = spec.width, .out = spec.vocabulary};
      projection_ = RegisterAt(*this, {spec.names.head}, MakeProduct(shape, options));
    } else if (embedding_ == nullptr) {
      embedding_ =
          RegisterAt(*this, {spec.names.base, spec.names.tokens}, MakeTokenTable(slice, options));
    }
  }

  FirstValue DescribeFirstValue(const std::string& name, std::int64_t dimensions) const override {
    FirstValue value = FamilyBlock::DescribeFirstValue(name, dimensions);
    if (name == table_name_) value.zeros = padding_;
    return value;
  }

  Bundle forward(Bundle bundle) override {
    KeepOwnTokens(sequence_, &bundle);
    const std::optional<moe::ExpertLoad> load = TakeExpertLoad(&bundle);
    const at::Tensor normed = norm_ ? norm_->forward(bundle.hidden) : bundle.hidden;
    const at::Tensor hidden = vocabulary_.group.Share(normed, "head");
    const at::Tensor& weight = projection_ ? projection_->weight() : embedding_->weight();
    if (const at::Tensor labels = FindLabels(bundle); labels.defined()) {
      const LabelRange range = FindRange(bundle, labels);
      const auto count = static_cast<double>(range.count);
      const double expected = count == 0.0 ? 1.0 : count / bundle.loss_unit;
      bundle.loss_count = count;
      std::int64_t hits = 0;
      bundle.loss = LmLoss(hidden, weight, labels,
                           {.soft_cap = soft_cap_,
                            .expected_scale = bundle.loss_scale * expected,
                            .vocabulary = vocabulary_,
                            .range = range,
                            .hits = is_training() ? nullptr : &hits});
      if (!is_training()) bundle.extras[kHitsName] = at::scalar_tensor(hits, at::kLong);
      if (load) bundle.extras[kExpertRoutes] = load->routes;
      if (load && balance_scale_ != 0.0 && is_training()) {
        bundle.loss = bundle.loss + moe::BalanceLoss(*load, experts_per_token_) * balance_scale_;
      }
    } else {
      at::Tensor logits = Affine(hidden, weight, /*bias=*/{}, WeightLayout::kOutIn);
      if (soft_cap_ > 0.0) logits = (logits / soft_cap_).tanh() * soft_cap_;
      bundle.extras["logits"] = logits;
    }
    bundle.hidden = at::Tensor();
    return bundle;
  }

 private:
  sequence_parallel::SequenceGroup sequence_;
  std::shared_ptr<Norm> norm_;            // null if there is none
  std::shared_ptr<Embedding> embedding_;  // registered only if block 0 is on another stage
  std::shared_ptr<Product> projection_;   // null when tied
  VocabularyShard vocabulary_;
  double soft_cap_;
  std::int64_t experts_per_token_;
  double balance_scale_;  // of the experts' balance loss; 0: not in the loss
  std::string table_name_;
  FirstValue::Zeros padding_;
};

}  // namespace

void AddLmHead(BlockList& model, const DecoderSlice& slice,
               const std::shared_ptr<Embedding>& embedding, const at::TensorOptions& options) {
  const bool reads = slice.spec().tied_head && embedding != nullptr;
  const std::vector<int> also_reads = reads ? std::vector<int>{0} : std::vector<int>{};
  model.Add(std::make_shared<LmHead>(slice, embedding, options), also_reads);
}

}  // namespace ds::models
