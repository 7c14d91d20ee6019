#include "runtime/models/lm_head.h"

#include "runtime/models/initialize.h"
#include "runtime/models/lm_loss.h"
#include "runtime/models/matmul.h"

namespace ds::models {
namespace {

// Those that the mask leaves.
at::Tensor FindLabels(const Bundle& bundle) {
  const at::Tensor& labels = bundle.tensor("labels");
  const at::Tensor& mask = bundle.tensor("mask");
  if (!labels.defined() || !mask.defined()) return labels;
  TORCH_CHECK(mask.sizes() == labels.sizes(), "the batch's mask has the shape ", mask.sizes(),
              ", its labels have ", labels.sizes());
  return labels.masked_fill(mask.eq(0), kIgnoredLabel);
}

class LmHead : public FamilyBlock {
 public:
  explicit LmHead(const LmHeadParts& parts)
      : FamilyBlock("", {.std = parts.initializer_range}),
        norm_(parts.norm),
        embedding_(parts.embedding) {
    auto holder = std::make_shared<torch::nn::Module>();
    holder->register_module(parts.norm_path[1], norm_);
    register_module(parts.norm_path[0], holder);
    if (parts.tied) return;
    const at::Tensor& table = embedding_->weight();
    const Linear::Shape shape{.in = table.size(1), .out = table.size(0)};
    projection_ = register_module("lm_head", std::make_shared<Linear>(shape, table.options()));
  }

  Bundle forward(Bundle bundle) override {
    const at::Tensor hidden = norm_->forward(bundle.hidden);
    const at::Tensor& weight = projection_ ? projection_->weight() : embedding_->weight();
    if (const at::Tensor labels = FindLabels(bundle); labels.defined()) {
      const auto count = static_cast<double>(CountLabels(labels));
      const double expected = count == 0.0 ? 1.0 : count / bundle.loss_unit;
      bundle.loss_count = count;
      bundle.loss = LmLoss(hidden, weight, labels, bundle.loss_scale * expected);
    } else {
      bundle.extras["logits"] = Affine(hidden, weight, /*bias=*/{}, WeightLayout::kOutIn);
    }
    bundle.hidden = at::Tensor();
    return bundle;
  }

 private:
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Embedding> embedding_;  // not registered: its parameters are block 0's
  std::shared_ptr<Linear> projection_;    // null when tied
};

}  // namespace

void AddLmHead(BlockList& model, const LmHeadParts& parts) {
  const std::vector<int> also_reads = parts.tied ? std::vector<int>{0} : std::vector<int>{};
  model.Add(std::make_shared<LmHead>(parts), also_reads);
}

}  // namespace ds::models
