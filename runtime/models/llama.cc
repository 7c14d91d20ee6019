#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <numbers>

#include "runtime/models/activations.h"
#include "runtime/models/build_model.h"
#include "runtime/models/initialize.h"
#include "runtime/models/layers.h"
#include "runtime/models/lm_head.h"
#include "runtime/models/rotary.h"

namespace ds::models {
namespace {

// Llama 3's stretching: wavelengths far beyond the original context are slowed by `factor`, short
// ones kept, those between interpolated (transformers' _compute_llama3_parameters).
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double turns = rope.original_positions * frequency / (2.0 * std::numbers::pi);
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  if (turns > rope.high_frequency_factor) return frequency;
  const double smooth = (turns - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// One table of rotary angles per model, shared by its layers.
class Rotary {
 public:
  Rotary(const RopeConfig& rope, std::int64_t head_width);

  // `x` [B, heads, S, head width] with position s rotated by s times the frequencies.
  at::Tensor Apply(const at::Tensor& x);

 private:
  // Makes cos_ and sin_ [S, head width / 2] for x's length, device and dtype unless they are there.
  void Prepare(const at::Tensor& x);

  at::Tensor frequencies_;  // [head width / 2] fp32, CPU
  at::Tensor cos_, sin_;
};

Rotary::Rotary(const RopeConfig& rope, std::int64_t head_width)
    : frequencies_(at::empty({head_width / 2}, at::kFloat)) {
  auto* out = frequencies_.data_ptr<float>();
  for (std::int64_t i = 0; i < head_width / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(head_width);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.scaling == RopeConfig::Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeConfig::Scaling::kLlama3) frequency = Llama3Frequency(rope, frequency);
    out[i] = static_cast<float>(frequency);
  }
}

void Rotary::Prepare(const at::Tensor& x) {
  const std::int64_t tokens = x.size(2);
  const bool fits = cos_.defined() && cos_.size(0) == tokens && cos_.device() == x.device() &&
                    cos_.scalar_type() == x.scalar_type();
  if (fits) return;
  const at::Tensor positions = at::arange(tokens, frequencies_.options());
  const at::Tensor angles = at::outer(positions, frequencies_).to(x.device());
  cos_ = at::cos(angles).to(x.scalar_type());
  sin_ = at::sin(angles).to(x.scalar_type());
}

at::Tensor Rotary::Apply(const at::Tensor& x) {
  Prepare(x);
  return ApplyRotary(x, cos_, sin_);
}

// The token table; prefix "model".
class LlamaEmbedding : public FamilyBlock {
 public:
  LlamaEmbedding(const ModelConfig& config, std::int64_t width, const at::TensorOptions& options)
      : FamilyBlock("model", {.std = config.initializer_range}),
        tokens_(register_module("embed_tokens",
                                std::make_shared<Embedding>(config.vocab_size, width, options))) {}

  Bundle forward(Bundle bundle) override {
    CheckNames(bundle.batch, kLanguageModelBatch);
    bundle.hidden = tokens_->forward(bundle.tensor("tokens"));
    return bundle;
  }

  std::shared_ptr<Embedding> tokens() const { return tokens_; }

 private:
  std::shared_ptr<Embedding> tokens_;
};

class LlamaAttention : public torch::nn::Module {
 public:
  LlamaAttention(const LlamaConfig& llama, std::shared_ptr<Rotary> rotary,
                 const at::TensorOptions& options)
      : rotary_(std::move(rotary)),
        head_width_(llama.head_width),
        dropout_(llama.attention_dropout) {
    const std::int64_t query_width = llama.heads * llama.head_width;
    const std::int64_t key_width = llama.kv_heads * llama.head_width;
    const auto add = [&](const char* name, std::int64_t in, std::int64_t out) {
      const Linear::Shape shape{.in = in, .out = out, .bias = llama.attention_bias};
      return register_module(name, std::make_shared<Linear>(shape, options));
    };
    q_proj_ = add("q_proj", llama.width, query_width);
    k_proj_ = add("k_proj", llama.width, key_width);
    v_proj_ = add("v_proj", llama.width, key_width);
    o_proj_ = add("o_proj", query_width, llama.width);
  }

  at::Tensor forward(const at::Tensor& x, const Bundle& bundle) const {
    const auto as_heads = [&](const at::Tensor& part) {
      return part.view({x.size(0), x.size(1), -1, head_width_}).transpose(1, 2);
    };
    const at::Tensor mixed = CausalAttention(
        rotary_->Apply(as_heads(q_proj_->forward(x))),
        rotary_->Apply(as_heads(k_proj_->forward(x))), as_heads(v_proj_->forward(x)),
        {.scale = 1.0 / std::sqrt(static_cast<double>(head_width_)),
         .recompute = bundle.recompute_attention,
         .dropout = {.probability = is_training() ? dropout_ : 0.0,
                     .place = bundle.random,
                     .site = DropoutSite::kAttention}});
    return o_proj_->forward(mixed);
  }

 private:
  std::shared_ptr<Rotary> rotary_;
  std::int64_t head_width_;
  double dropout_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
};

// down(activation(gate(x)) * up(x))
class LlamaMlp : public torch::nn::Module {
 public:
  LlamaMlp(const LlamaConfig& llama, const at::TensorOptions& options)
      : activation_(llama.activation) {
    const auto add = [&](const char* name, std::int64_t in, std::int64_t out) {
      const Linear::Shape shape{.in = in, .out = out, .bias = llama.mlp_bias};
      return register_module(name, std::make_shared<Linear>(shape, options));
    };
    gate_proj_ = add("gate_proj", llama.width, llama.mlp_width);
    up_proj_ = add("up_proj", llama.width, llama.mlp_width);
    down_proj_ = add("down_proj", llama.mlp_width, llama.width);
  }

  at::Tensor forward(const at::Tensor& x) const {
    return down_proj_->forward(
        GatedActivation(activation_, gate_proj_->forward(x), up_proj_->forward(x)));
  }

 private:
  Activation activation_;
  std::shared_ptr<Linear> gate_proj_, up_proj_, down_proj_;
};

// One transformer layer; prefix "model.layers.N".
class LlamaLayer : public FamilyBlock {
 public:
  LlamaLayer(std::string prefix, const ModelConfig& config, std::shared_ptr<Rotary> rotary,
             const at::TensorOptions& options)
      : FamilyBlock(std::move(prefix), {.std = config.initializer_range}) {
    const auto& llama = std::get<LlamaConfig>(config.family);
    const auto add_norm = [&](const char* name) {
      return register_module(name,
                             std::make_shared<RmsNorm>(llama.width, llama.norm_epsilon, options));
    };
    input_norm_ = add_norm("input_layernorm");
    attention_ = register_module(
        "self_attn", std::make_shared<LlamaAttention>(llama, std::move(rotary), options));
    post_norm_ = add_norm("post_attention_layernorm");
    mlp_ = register_module("mlp", std::make_shared<LlamaMlp>(llama, options));
  }

  Bundle forward(Bundle bundle) override {
    bundle.hidden =
        bundle.hidden + attention_->forward(input_norm_->forward(bundle.hidden), bundle);
    bundle.hidden = bundle.hidden + mlp_->forward(post_norm_->forward(bundle.hidden));
    return bundle;
  }

 private:
  std::shared_ptr<RmsNorm> input_norm_, post_norm_;
  std::shared_ptr<LlamaAttention> attention_;
  std::shared_ptr<LlamaMlp> mlp_;
};

}  // namespace

std::shared_ptr<BlockList> BuildLlama(const ModelConfig& config, const at::TensorOptions& options) {
  const auto& llama = std::get<LlamaConfig>(config.family);
  auto model = std::make_shared<BlockList>();
  auto embedding = std::make_shared<LlamaEmbedding>(config, llama.width, options);
  model->Add(embedding);
  auto rotary = std::make_shared<Rotary>(llama.rope, llama.head_width);
  for (std::int64_t i = 0; i < llama.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    model->Add(std::make_shared<LlamaLayer>(prefix, config, rotary, options));
  }
  AddLmHead(*model,
            LmHeadParts{.norm_path = {"model", "norm"},
                        .norm = std::make_shared<RmsNorm>(llama.width, llama.norm_epsilon, options),
                        .embedding = embedding->tokens(),
                        .tied = config.tied_head,
                        .initializer_range = config.initializer_range});
  return model;
}

}  // namespace ds::models
