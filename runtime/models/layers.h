#pragma once

// The parts that families share. Each registers its parameters, unmaterialised, under the names
// that Hugging Face gives them ("weight", "bias").
//
// Shapes: x is [..., in]; the result [..., out].

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "runtime/activation/recompute.h"
#include "runtime/models/dropout.h"

namespace ds::models {

// x · weightᵀ + bias, weight [out, in].
class Linear : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t in = 0, out = 0;
    bool bias = false;
  };
  Linear(Shape shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_, bias_;
};

// GPT-2's layout: x · weight + bias, weight [in, out].
class Conv1d : public torch::nn::Module {
 public:
  Conv1d(std::int64_t in, std::int64_t out, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

// A row of the table [rows, width] per token id, differentiable: [...] int64 -> [..., width].
at::Tensor LookUp(const at::Tensor& table, const at::Tensor& ids);

class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t rows, std::int64_t width, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& ids) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
};

// A normalisation over the last dimension.
class Norm : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) const = 0;
};

class LayerNorm : public Norm {
 public:
  LayerNorm(std::int64_t width, double epsilon, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const override;

 private:
  at::Tensor weight_, bias_;
  double epsilon_;
};

class RmsNorm : public Norm {
 public:
  RmsNorm(std::int64_t width, double epsilon, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const override;

 private:
  at::Tensor weight_;
  double epsilon_;
};

// Causal attention of [B, heads, S, head width] queries over keys and values that may have fewer
// heads (each is shared by a group of query heads); returns [B, S, heads * head width].
struct AttentionOptions {
  double scale = 1.0;
  // Present: keeps q, k and v only, and is computed again in the backward pass.
  std::optional<activation::RecomputeOptions> recompute = {};
  DropoutDraw dropout = {};  // of the weights
};
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options);

}  // namespace ds::models
