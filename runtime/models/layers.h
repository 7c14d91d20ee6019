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

#include "runtime/models/matmul.h"
#include "runtime/tensor_parallel/group.h"

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
  at::Tensor forward(const at::Tensor& x) const;
  const at::Tensor& weight() const { return weight_; }

  // Adds scale * B A x to what it computes from here on, with A [rank, in] and B [out, rank] as
  // parameters "lora_A.weight" and "lora_B.weight". Once.
  void AddAdapter(std::int64_t rank, double scale);

 private:
  WeightLayout layout_;
  tensor_parallel::Group add_up_;
  at::Tensor weight_, bias_;
  std::shared_ptr<Product> narrow_, wide_;  // A and B of the adapter; null without
  double adapter_scale_ = 1.0;
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
