#pragma once

// Products and tables. Each registers its parameters, unmaterialised, under the names that Hugging
// Face gives them ("weight", "bias").
//
// Shapes: x is [..., in]; the result [..., out].

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

// x · W, plus a bias if there is one.
class Product : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t in = 0, out = 0;
    bool bias = false;
    WeightLayout layout = WeightLayout::kOutIn;
    tensor_parallel::Group add_up = {};  // Affine's
  };
  Product(const Shape& shape, const at::TensorOptions& options);
  // `place` says where x stands among all draws; an adapter that drops its inputs needs it while
  // training, and takes x of [samples, positions, in].
  at::Tensor forward(const at::Tensor& x, const RandomPlace* place = nullptr) const;
  // Undefined where bytes stand for it.
  const at::Tensor& weight() const { return weight_; }
  // Says what it multiplies by and adds, where it does nothing else.
  std::optional<AffineWeights> FindAffine() const;

  struct Adapter {
    std::int64_t rank = 0;
    double scale = 1.0;
    bool magnitudes = false;  // DoRA: https://arxiv.org/abs/2402.09353
    // The ranks that have the outputs between them, on inputs that they share.
    tensor_parallel::Group users = {};
    // Elements of A's inputs are dropped so often while training. The name parts this layer's draws
    // from those of others in the block; of inputs that ranks have between them, this rank's begin
    // with `first_input`.
    double dropout = 0.0;
    std::string name = {};
    std::int64_t first_input = 0;
  };
  // Adds scale * B A x to what it computes from here on, with A [rank, in] and B [out, rank] as
  // parameters "lora_A.weight" and "lora_B.weight". Once. With magnitudes each output, but for the
  // bias, is multiplied by its element of "lora_magnitude_vector" [out] over the norm of its row of
  // W + scale * B A, through which no gradient flows. Inputs are dropped as by PEFT: of x for A,
  // and with magnitudes m over norm n also for W in what (m / n - 1) W x adds to W x.
  void AddAdapter(const Adapter& adapter);

  // Lets bytes that are not trained, "quantized_weight" of kByte, stand in for the weight from here
  // on (models/kernels/quantized_weight.h). Once, before the adapter or behind it.
  void Quantize(BaseFormat format);

  // Says what stands for the weight; nothing where the weight is itself.
  const std::optional<QuantizedLayout>& quantized() const { return quantized_layout_; }
  // Tells whether ranks have the inputs between them.
  bool adds_up() const { return add_up_.size() > 1; }
  bool has_magnitudes() const { return magnitudes_.defined(); }
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  WeightLayout layout() const { return layout_; }
  at::ScalarType dtype() const { return dtype_; }

 private:
  at::Tensor DropInputs(const at::Tensor& x, const RandomPlace* place) const;
  at::Tensor MakeChange(const at::Tensor& x) const;  // scale * B A x
  at::Tensor Multiply(const at::Tensor& x, const at::Tensor& bias) const;
  at::Tensor AdaptedNorms() const;  // of the rows of W + scale * B A, [out], fp32

  std::int64_t in_, out_;
  WeightLayout layout_;
  at::ScalarType dtype_;
  tensor_parallel::Group add_up_;
  at::Tensor weight_, bias_;
  at::Tensor quantized_;  // in place of the weight
  std::optional<QuantizedLayout> quantized_layout_;
  std::shared_ptr<Product> narrow_, wide_;  // A and B of the adapter; null without
  at::Tensor magnitudes_;                   // of DoRA
  Adapter adapter_;
};

// The weight is [out, in]. Classes of its own, for a config names modules by their classes.
class Linear : public Product {
 public:
  using Product::Product;
};

// GPT-2's layout: the weight is [in, out].
class Conv1d : public Product {
 public:
  using Product::Product;
};

// A matrix of an expert. transformers holds those of a layer in one parameter, which is no linear
// layer, so that no adapter stands beside it.
class ExpertWeight : public Product {
 public:
  using Product::Product;
};

std::shared_ptr<Product> MakeProduct(const Product::Shape& shape, const at::TensorOptions& options);

// A row of the table [rows, width] per token id, differentiable: [...] int64 -> [..., width]. The
// row `padding`, if there is one, gets no gradient.
at::Tensor LookUp(const at::Tensor& table, const at::Tensor& ids,
                  std::optional<std::int64_t> padding = std::nullopt);

class Embedding : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t rows = 0, width = 0;
    std::optional<std::int64_t> padding = std::nullopt;
    // The ranks of `group` have a table of `all_rows` between them, this one those from here on.
    tensor_parallel::Group group = {};
    std::int64_t first_row = 0, all_rows = 0;
  };
  Embedding(const Shape& shape, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& ids) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor LookUpOwn(const at::Tensor& ids) const;

  std::optional<std::int64_t> padding_;
  tensor_parallel::Group group_;
  std::int64_t first_row_, all_rows_;
  at::Tensor weight_;
};

// Registers `part` in `root` at a path: names of modules within modules, parted by dots or as
// elements, of which empty ones do not count. Those that are not there are made.
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
