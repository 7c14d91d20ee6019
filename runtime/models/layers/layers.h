#pragma once

// Product, Embedding: linear layers and embedding tables. Each registers its parameters,
// unmaterialised, under the names that Hugging Face gives them ("weight", "bias").
//
// Shapes: x is [..., in]; the result is [..., out].

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/models/kernels/dropout.h"
#include "runtime/models/kernels/matmul.h"
#include "runtime/parallel/tensor/group.h"
#include "runtime/plan/model/quantized_layout.h"

namespace ds::models {

// A linear layer: x · W, plus a bias if there is one.
class Product : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t in = 0, out = 0;
    bool bias = false;
    WeightLayout layout = WeightLayout::kOutIn;
    tensor_parallel::TensorGroup add_up = {};  // as in Affine
  };
  Product(const Shape& shape, const at::TensorOptions& options);
  // `origin` is the RNG position of x. An adapter with dropout needs it in training; x must then be
  // [samples, positions, in].
  at::Tensor forward(const at::Tensor& x, const RandomPosition* origin = nullptr) const;
  // The weight; undefined if the layer is quantised.
  const at::Tensor& weight() const { return weight_; }
  // Returns the weight and bias if the layer is a plain affine map; otherwise nothing.
  std::optional<AffineWeights> FindAffine() const;

  struct Adapter {
    std::int64_t rank = 0;
    double scale = 1.0;
    bool magnitudes = false;  // DoRA: https://arxiv.org/abs/2402.09353
    // The ranks that shard the outputs, on inputs that they share.
    tensor_parallel::TensorGroup users = {};
    // The dropout probability of A's inputs in training. `name` separates this layer's draws from
    // the draws of other layers in the block. If ranks shard the inputs, this rank's start at
    // `first_input`.
    double dropout = 0.0;
    std::string name = {};
    std::int64_t first_input = 0;
  };
  // Adds an adapter: forward then also adds scale * B A x, with A [rank, in] and B [out, rank] as
  // parameters "lora_A.weight" and "lora_B.weight". Call it at most once. With magnitudes (DoRA),
  // each output, without the bias, is multiplied by its element of "lora_magnitude_vector" [out]
  // divided by the norm of its row of W + scale * B A; no gradient flows through the norm. Inputs
  // are dropped as in PEFT: A gets the dropped x. With magnitudes m and norms n, the term (m / n -
  // 1) W x, which is added to W x, uses the dropped x, too.
  void AddAdapter(const Adapter& adapter);

  // Replaces the weight with untrained bytes, "quantized_weight" of dtype kByte
  // (models/kernels/quantized_weight.h). Call it at most once, before or after AddAdapter.
  void Quantize(BaseFormat format);

  // The layout of the quantised weight; nothing if the weight is not quantised.
  const std::optional<QuantizedLayout>& quantized() const { return quantized_layout_; }
  // Returns whether ranks shard the inputs.
  bool adds_up() const { return add_up_.size() > 1; }
  bool has_magnitudes() const { return magnitudes_.defined(); }
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  WeightLayout layout() const { return layout_; }
  at::ScalarType dtype() const { return dtype_; }

 private:
  at::Tensor DropInputs(const at::Tensor& x, const RandomPosition* origin) const;
  at::Tensor MakeChange(const at::Tensor& x) const;  // scale * B A x
  at::Tensor Multiply(const at::Tensor& x, const at::Tensor& bias) const;
  at::Tensor AdaptedNorms() const;  // of the rows of W + scale * B A, [out], fp32

  std::int64_t in_, out_;
  WeightLayout layout_;
  at::ScalarType dtype_;
  tensor_parallel::TensorGroup add_up_;
  at::Tensor weight_, bias_;
  at::Tensor quantized_;  // replaces weight_
  std::optional<QuantizedLayout> quantized_layout_;
  std::shared_ptr<Product> narrow_, wide_;  // the adapter's A and B; null if there is none
  at::Tensor magnitudes_;                   // for DoRA
  Adapter adapter_;
};

// The weight is [out, in]. A separate class, because a config names modules by class.
class Linear : public Product {
 public:
  using Product::Product;
};

// GPT-2's layout: the weight is [in, out].
class Conv1d : public Product {
 public:
  using Product::Product;
};

// A matrix of an expert. transformers stores all experts of a layer in one parameter, which is not
// a linear layer; therefore it gets no adapter.
class ExpertWeight : public Product {
 public:
  using Product::Product;
};

std::shared_ptr<Product> MakeProduct(const Product::Shape& shape, const at::TensorOptions& options);

// Returns a row of the table [rows, width] for each token id, differentiable: [...] int64 -> [...,
// width]. The row `padding`, if set, gets no gradient.
at::Tensor LookUp(const at::Tensor& table, const at::Tensor& ids,
                  std::optional<std::int64_t> padding = std::nullopt);

class Embedding : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t rows = 0, width = 0;
    std::optional<std::int64_t> padding = std::nullopt;
    // The ranks of `group` shard a table of `all_rows` rows; this rank's rows start at `first_row`.
    tensor_parallel::TensorGroup group = {};
    std::int64_t first_row = 0, all_rows = 0;
  };
  Embedding(const Shape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& ids) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor LookUpOwn(const at::Tensor& ids) const;

  std::optional<std::int64_t> padding_;
  tensor_parallel::TensorGroup group_;
  std::int64_t first_row_, all_rows_;
  at::Tensor weight_;
};

// Registers `part` in `root` at a path of module names. An element of the path may itself be a
// dotted path; empty elements are skipped. Missing modules on the path are created.
void PutAt(torch::nn::Module& root, std::initializer_list<std::string_view> path,
           std::shared_ptr<torch::nn::Module> part);
template <typename Part>
std::shared_ptr<Part> RegisterAt(torch::nn::Module& root,
                                 std::initializer_list<std::string_view> path,
                                 std::shared_ptr<Part> part) {
  PutAt(root, path, part);
  return part;
}

}  // namespace ds::models
