#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cmath>

#include "runtime/models/activations.h"
#include "runtime/models/build_model.h"
#include "runtime/models/initialize.h"
#include "runtime/models/layers.h"
#include "runtime/models/lm_head.h"

namespace ds::models {
namespace {

// Token and position tables; prefix "transformer".
class Gpt2Embedding : public FamilyBlock {
 public:
  Gpt2Embedding(const ModelConfig& config, const Gpt2Config& gpt2, const at::TensorOptions& options)
      : FamilyBlock("transformer", {.std = config.initializer_range}),
        tokens_(register_module(
            "wte", std::make_shared<Embedding>(config.vocab_size, gpt2.width, options))),
        positions_(register_module(
            "wpe", std::make_shared<Embedding>(config.max_positions, gpt2.width, options))),
        dropout_(gpt2.embedding_dropout) {}

  Bundle forward(Bundle bundle) override {
    CheckNames(bundle.batch, kLanguageModelBatch);
    const at::Tensor& tokens = bundle.tensor("tokens");
    const at::Tensor ids = at::arange(tokens.size(-1), tokens.options());
    const at::Tensor sum = tokens_->forward(tokens) + positions_->forward(ids);
    bundle.hidden = Dropout(sum, {.probability = is_training() ? dropout_ : 0.0,
                                  .place = bundle.random,
                                  .site = DropoutSite::kEmbedding});
    return bundle;
  }

  std::shared_ptr<Embedding> tokens() const { return tokens_; }

 private:
  std::shared_ptr<Embedding> tokens_, positions_;
  double dropout_;
};

// x -> c_proj(softmax(q kᵀ / scale) v)
class Gpt2Attention : public torch::nn::Module {
 public:
  Gpt2Attention(const Gpt2Config& gpt2, std::int64_t layer, const at::TensorOptions& options)
      : c_attn_(register_module("c_attn",
                                std::make_shared<Conv1d>(gpt2.width, 3 * gpt2.width, options))),
        c_proj_(
            register_module("c_proj", std::make_shared<Conv1d>(gpt2.width, gpt2.width, options))),
        heads_(gpt2.heads),
        attention_dropout_(gpt2.attention_dropout),
        residual_dropout_(gpt2.residual_dropout) {
    const std::int64_t head_width = gpt2.width / gpt2.heads;
    if (gpt2.scale_attention) scale_ /= std::sqrt(static_cast<double>(head_width));
    if (gpt2.scale_attention_by_layer) scale_ /= static_cast<double>(layer + 1);
  }

  at::Tensor forward(const at::Tensor& x, const Bundle& bundle) const {
    const std::int64_t samples = x.size(0), tokens = x.size(1), head_width = x.size(2) / heads_;
    const auto parts = c_attn_->forward(x).split(x.size(2), /*dim=*/2);
    const auto as_heads = [&](const at::Tensor& part) {
      return part.view({samples, tokens, heads_, head_width}).transpose(1, 2);
    };
    const at::Tensor mixed =
        CausalAttention(as_heads(parts[0]), as_heads(parts[1]), as_heads(parts[2]),
                        {.scale = scale_,
                         .recompute = bundle.recompute_attention,
                         .dropout = {.probability = is_training() ? attention_dropout_ : 0.0,
                                     .place = bundle.random,
                                     .site = DropoutSite::kAttention}});
    return Dropout(c_proj_->forward(mixed), {.probability = is_training() ? residual_dropout_ : 0.0,
                                             .place = bundle.random,
                                             .site = DropoutSite::kAttentionOutput});
  }

 private:
  std::shared_ptr<Conv1d> c_attn_, c_proj_;
  std::int64_t heads_;
  double attention_dropout_, residual_dropout_;
  double scale_ = 1.0;
};

class Gpt2Mlp : public torch::nn::Module {
 public:
  Gpt2Mlp(const Gpt2Config& gpt2, const at::TensorOptions& options)
      : c_fc_(
            register_module("c_fc", std::make_shared<Conv1d>(gpt2.width, gpt2.mlp_width, options))),
        c_proj_(register_module("c_proj",
                                std::make_shared<Conv1d>(gpt2.mlp_width, gpt2.width, options))),
        activation_(gpt2.activation),
        dropout_(gpt2.residual_dropout) {}

  at::Tensor forward(const at::Tensor& x, const RandomPlace& place) const {
    const at::Tensor wide = Activate(activation_, c_fc_->forward(x));
    return Dropout(c_proj_->forward(wide), {.probability = is_training() ? dropout_ : 0.0,
                                            .place = place,
                                            .site = DropoutSite::kMlpOutput});
  }

 private:
  std::shared_ptr<Conv1d> c_fc_, c_proj_;
  Activation activation_;
  double dropout_;
};

// One transformer layer; prefix "transformer.h.N".
class Gpt2Layer : public FamilyBlock {
 public:
  Gpt2Layer(const ModelConfig& config, std::int64_t layer, const at::TensorOptions& options)
      : Gpt2Layer(config, std::get<Gpt2Config>(config.family), layer, options) {}

  Bundle forward(Bundle bundle) override {
    bundle.hidden = bundle.hidden + attn_->forward(ln_1_->forward(bundle.hidden), bundle);
    bundle.hidden = bundle.hidden + mlp_->forward(ln_2_->forward(bundle.hidden), bundle.random);
    return bundle;
  }

 private:
  Gpt2Layer(const ModelConfig& config, const Gpt2Config& gpt2, std::int64_t layer,
            const at::TensorOptions& options)
      : FamilyBlock("transformer.h." + std::to_string(layer), MakeInit(config, gpt2)),
        ln_1_(register_module("ln_1",
                              std::make_shared<LayerNorm>(gpt2.width, gpt2.norm_epsilon, options))),
        attn_(register_module("attn", std::make_shared<Gpt2Attention>(gpt2, layer, options))),
        ln_2_(register_module("ln_2",
                              std::make_shared<LayerNorm>(gpt2.width, gpt2.norm_epsilon, options))),
        mlp_(register_module("mlp", std::make_shared<Gpt2Mlp>(gpt2, options))) {}

  // The GPT-2 paper's scheme: what is added to the residual stream starts smaller with depth.
  static NormalInit MakeInit(const ModelConfig& config, const Gpt2Config& gpt2) {
    const double residual =
        config.initializer_range / std::sqrt(2.0 * static_cast<double>(gpt2.layers));
    return {.std = config.initializer_range,
            .residual_std = residual,
            .residual_name = "c_proj.weight"};
  }

  std::shared_ptr<LayerNorm> ln_1_;
  std::shared_ptr<Gpt2Attention> attn_;
  std::shared_ptr<LayerNorm> ln_2_;
  std::shared_ptr<Gpt2Mlp> mlp_;
};

}  // namespace

std::shared_ptr<BlockList> BuildGpt2(const ModelConfig& config, const at::TensorOptions& options) {
  const auto& gpt2 = std::get<Gpt2Config>(config.family);
  auto model = std::make_shared<BlockList>();
  auto embedding = std::make_shared<Gpt2Embedding>(config, gpt2, options);
  model->Add(embedding);
  for (std::int64_t i = 0; i < gpt2.layers; ++i) {
    model->Add(std::make_shared<Gpt2Layer>(config, i, options));
  }
  AddLmHead(*model,
            LmHeadParts{.norm_path = {"transformer", "ln_f"},
                        .norm = std::make_shared<LayerNorm>(gpt2.width, gpt2.norm_epsilon, options),
                        .embedding = embedding->tokens(),
                        .tied = config.tied_head,
                        .initializer_range = config.initializer_range});
  return model;
}

}  // namespace ds::models
