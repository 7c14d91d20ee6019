#include "runtime/models/layers/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/put_gradient.h"
#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/models/block.h"
#include "runtime/models/kernels/quantized_weight.h"

namespace ds::models {

Product::Product(const Shape& shape, const at::TensorOptions& options)
    : in_(shape.in),
      out_(shape.out),
      layout_(shape.layout),
      dtype_(options.dtype().toScalarType()),
      add_up_(shape.add_up) {
  const bool in_out = shape.layout == WeightLayout::kInOut;
  weight_ = register_parameter(
      "weight", UnmaterialisedParameter(
                    {in_out ? shape.in : shape.out, in_out ? shape.out : shape.in}, options));
  if (shape.bias) bias_ = register_parameter("bias", UnmaterialisedParameter({shape.out}, options));
}

at::Tensor Product::Multiply(const at::Tensor& x, const at::Tensor& bias) const {
  if (quantized_layout_) return QuantizedAffine(x, quantized_, *quantized_layout_, bias);
  return Affine(x, weight_, bias, layout_, add_up_);
}

at::Tensor Product::DropInputs(const at::Tensor& x, const RandomPosition* origin) const {
  TORCH_CHECK(origin != nullptr, "the adapter of ", adapter_.name,
              " drops inputs, and needs their positions (Product::forward)");
  RandomPosition own = *origin;
  own.key = ExtendKey(origin->key, adapter_.name);
  own.first_column = adapter_.first_input;
  return Dropout(
      x, {.probability = adapter_.dropout, .origin = own, .site = DropoutSite::kAdapterInput});
}

at::Tensor Product::MakeChange(const at::Tensor& x) const {
  // The gradient of A is the sum of the contributions of all parts of the outputs.
  const at::Tensor narrowed = adapter_.users.size() == 1
                                  ? narrow_->forward(x)
                                  : Affine(x, adapter_.users.Share(narrow_->weight(), "adapter"),
                                           /*bias=*/{}, WeightLayout::kOutIn);
  return wide_->forward(narrowed * adapter_.scale);
}

at::Tensor Product::forward(const at::Tensor& x, const RandomPosition* origin) const {
  if (!narrow_) return Multiply(x, bias_);
  const bool drops = adapter_.dropout > 0.0 && is_training();
  const at::Tensor seen = drops ? DropInputs(x, origin) : x;
  const at::Tensor change = MakeChange(seen);
  if (!magnitudes_.defined()) return Multiply(x, bias_) + change;
  const at::Tensor of_rows = magnitudes_ / AdaptedNorms();
  if (drops) {
    const at::Tensor factors = of_rows.to(change.scalar_type());
    return Multiply(x, bias_) + (factors - 1.0) * Multiply(seen, /*bias=*/{}) + factors * change;
  }
  const at::Tensor y = Multiply(x, /*bias=*/{}) + change;
  const at::Tensor adapted = y * of_rows.to(y.scalar_type());
  return bias_.defined() ? adapted + precision::AutocastOperand(bias_) : adapted;
}

std::optional<AffineWeights> Product::FindAffine() const {
  if (narrow_ || quantized_layout_ || add_up_.size() > 1) return std::nullopt;
  return AffineWeights{.weight = weight_, .bias = bias_, .layout = layout_};
}

at::Tensor Product::AdaptedNorms() const {
  const c10::NoGradGuard no_grad;
  at::Tensor weight = quantized_layout_
                          ? DequantizeWeight(quantized_, *quantized_layout_, at::kFloat)
                          : weight_.to(at::kFloat);
  if (!quantized_layout_ && layout_ == WeightLayout::kInOut) weight = weight.t();
  const at::Tensor wide = wide_->weight().to(at::kFloat);
  const at::Tensor narrow = narrow_->weight().to(at::kFloat);
  return at::addmm(weight, wide, narrow, 1.0, adapter_.scale).norm(2, {1});
}

void Product::AddAdapter(const Adapter& adapter) {
  DS_CHECK_MSG(!narrow_, "a layer takes one adapter");
  const auto options =
      at::TensorOptions(dtype_).device(quantized_layout_ ? quantized_.device() : weight_.device());
  narrow_ = register_module(
      "lora_A", MakeProduct({.in = in_, .out = adapter.rank, .add_up = add_up_}, options));
  wide_ = register_module("lora_B", MakeProduct({.in = adapter.rank, .out = out_}, options));
  if (adapter.magnitudes) {
    magnitudes_ =
        register_parameter("lora_magnitude_vector", UnmaterialisedParameter({out_}, options));
  }
  adapter_ = adapter;
}

void Product::Quantize(BaseFormat format) {
  DS_CHECK_MSG(!quantized_layout_ && add_up_.size() == 1, "a full weight is quantised once");
  quantized_layout_ = QuantizedLayout{.format = format, .rows = out_, .columns = in_};
  at::Tensor bytes =
      UnmaterialisedParameter({quantized_layout_->bytes()}, weight_.options().dtype(at::kByte),
                              /*trained=*/false);
  parameters_.erase("weight");
  weight_ = at::Tensor();
  quantized_ = register_parameter("quantized_weight", bytes, /*requires_grad=*/false);
}

std::shared_ptr<Product> MakeProduct(const Product::Shape& shape,
                                     const at::TensorOptions& options) {
  if (shape.layout == WeightLayout::kInOut) return std::make_shared<Conv1d>(shape, options);
  return std::make_shared<Linear>(shape, options);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kRowsAtOnce = 1024;  // rows upcast at once

// Computes target = beta * target + the rows of each id. In 16 bits every addition would round, so
// a row's contributions are summed in fp32, in the order of the ids, and rounded once.
void AddRows(const at::Tensor& ids, const at::Tensor& rows, float beta, at::Tensor& target) {
  if (beta == 0.0F) target.zero_();
  const auto add = [&rows](const at::Tensor& sums, const at::Tensor& numbers) {
    for (std::int64_t start = 0; start < rows.size(0); start += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, rows.size(0) - start);
      sums.index_add_(0, numbers.narrow(0, start, count),
                      rows.narrow(0, start, count).to(at::kFloat));
    }
  };
  if (target.scalar_type() == at::kFloat) return add(target, ids);
  const auto [found, numbers] = at::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
  const at::Tensor sums = target.index_select(0, found).to(at::kFloat);
  add(sums, numbers);
  target.index_copy_(0, found, sums.to(target.scalar_type()));
}

// Avoids a dense gradient as large as the vocabulary for a batch's few rows, and its addition to
// the gradient of a tied head.
class LookUpFunction : public torch::autograd::Function<LookUpFunction> {
 public:
  // `padding` is -1 if there is none.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& ids, std::int64_t padding) {
    context->save_for_backward({table, ids});
    context->saved_data["padding"] = padding;
    return at::embedding(table, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &table = saved[0], &ids = saved[1];
    const std::int64_t padding = context->saved_data["padding"].toInt();
    const auto add_rows = [ids, padding, gradient = upstream[0]](at::Tensor& target, float beta) {
      at::Tensor rows = gradient.reshape({-1, target.size(1)});
      if (padding >= 0) rows = rows.masked_fill(ids.reshape({-1, 1}).eq(padding), 0.0);
      AddRows(ids.flatten(), rows, beta, target);
    };
    // Other devices add the rows in no fixed order.
    if (table.is_cpu() && table.scalar_type() != at::kDouble &&
        gradients::PutGradient(table, add_rows, gradients::DestinationDtype::kAnyFloat)) {
      return variable_list(3);
    }
    return {at::embedding_dense_backward(upstream[0], ids, table.size(0), padding,
                                         /*scale_grad_by_freq=*/false),
            {},
            {}};
  }
};

}  // namespace

at::Tensor LookUp(const at::Tensor& table, const at::Tensor& ids,
                  std::optional<std::int64_t> padding) {
  return LookUpFunction::apply(table, ids, padding.value_or(-1));
}

Embedding::Embedding(const Shape& shape, const at::TensorOptions& options)
    : padding_(shape.padding),
      group_(shape.group),
      first_row_(shape.first_row),
      all_rows_(shape.all_rows),
      weight_(register_parameter("weight",
                                 UnmaterialisedParameter({shape.rows, shape.width}, options))) {}

namespace {

// A device checks the ids asynchronously and aborts by itself, as in its other lookups.
void CheckRows(const at::Tensor& are_rows, std::int64_t rows) {
  if (!are_rows.is_cpu()) {
    return at::_assert_async(are_rows,
                             "an id is outside the table of " + std::to_string(rows) + " rows");
  }
  TORCH_CHECK_INDEX(are_rows.item<bool>(), "an id is outside the table of ", rows, " rows");
}

}  // namespace

// Ids with rows on other ranks give zeros.
at::Tensor Embedding::LookUpOwn(const at::Tensor& ids) const {
  CheckRows(ids.ge(0).logical_and_(ids.lt(all_rows_)).all(), all_rows_);
  const at::Tensor own = ids - first_row_;
  const at::Tensor is_elsewhere = own.lt(0).logical_or_(own.ge(weight_.size(0)));
  const std::int64_t padding = padding_.value_or(-1) - first_row_;
  const bool has_padding = padding_ && padding >= 0 && padding < weight_.size(0);
  const at::Tensor rows = LookUp(weight_, own.masked_fill(is_elsewhere, 0),
                                 has_padding ? std::optional(padding) : std::nullopt);
  return rows.masked_fill(is_elsewhere.unsqueeze(-1), 0.0);
}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  if (group_.size() == 1) return LookUp(weight_, ids, padding_);
  return group_.AddUp(LookUpOwn(ids), "embeddings");
}

void PutAt(torch::nn::Module& root, std::initializer_list<std::string_view> path,
           std::shared_ptr<torch::nn::Module> part) {
  std::vector<std::string> names;
  for (const std::string_view element : path) {
    std::stringstream dotted{std::string(element)};
    for (std::string name; std::getline(dotted, name, '.');) names.push_back(name);
  }
  torch::nn::Module* holder = &root;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    const auto children = holder->named_children();
    const auto* found = children.find(names[i]);
    holder = found != nullptr
                 ? found->get()
                 : holder->register_module(names[i], std::make_shared<torch::nn::Module>()).get();
  }
  holder->register_module(names.back(), std::move(part));
}

}  // namespace ds::models
