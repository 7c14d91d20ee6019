#include "runtime/models/kernels/matmul.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/autograd/put_gradient.h"
#include "runtime/base/check.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/device/kernels/first_derivative.h"
#include "runtime/plan/memory/product_scratch.h"

namespace at::native {
// Exported by LibTorch but declared in none of its headers. Weak: if a version lacks this exact
// signature, products use MKL.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta, float alpha)
    __attribute__((weak));
}  // namespace at::native

namespace ds::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool MklLacksKernelsForThisCpu() {
#if defined(__x86_64__)
  return !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

bool UsesOneDnn(const at::Tensor& out) {
  static const bool usable = at::native::mkldnn_matmul != nullptr && MklLacksKernelsForThisCpu();
  return usable && out.is_cpu() && out.scalar_type() == at::kFloat;
}

bool IsMultipliedWidened(const at::Tensor& operand) {
  if (!operand.is_cpu()) return false;
  const at::ScalarType type = operand.scalar_type();
  return (type == at::kBFloat16 && IsMultipliedInFp32(config::DataType::kBf16)) ||
         (type == at::kHalf && IsMultipliedInFp32(config::DataType::kFp16));
}

at::Tensor Tile(const at::Tensor& matrix, std::int64_t row, std::int64_t column) {
  return matrix.narrow(0, row, std::min(kWidenedTile, matrix.size(0) - row))
      .narrow(1, column, std::min(kWidenedTile, matrix.size(1) - column));
}

// Gradients of y = x W + b from `gradient`, the gradient of y [N, out]. Each is written where it is
// collected, or returned to autograd.
at::Tensor GradientOfInput(const at::Tensor& weight, const at::Tensor& gradient, bool in_out) {
  const at::Tensor matrix = in_out ? weight.t() : weight;
  at::Tensor result = at::empty({gradient.size(0), matrix.size(1)}, gradient.options());
  MatMulInto(result, gradient, matrix);
  return result;
}

at::Tensor PutGradientOfWeight(const at::Tensor& weight, const at::Tensor& x,
                               const at::Tensor& gradient, bool in_out) {
  return gradients::PutOrMakeGradient(weight, [=](at::Tensor& target, float beta) {
    MatMulInto(target, in_out ? x.t() : gradient.t(), in_out ? gradient : x, beta);
  });
}

at::Tensor PutGradientOfBias(const at::Tensor& bias, const at::Tensor& gradient) {
  return gradients::PutOrMakeGradient(bias, [=](at::Tensor& target, float beta) {
    beta == 0.0F ? at::sum_out(target, gradient, at::IntArrayRef{0}) : target.add_(gradient.sum(0));
  });
}

struct AffineOptions {
  bool in_out = false;
  bool trains = true;  // the weight trains, and its gradient reads x
  tensor_parallel::TensorGroup add_up;
};

class AffineFunction : public torch::autograd::Function<AffineFunction> {
 public:
  // x [N, in].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const AffineOptions& options) {
    context->save_for_backward(
        {options.trains ? x : at::Tensor(), weight, bias.value_or(at::Tensor())});
    context->saved_data["in_out"] = options.in_out;
    const at::Tensor matrix = options.in_out ? weight : weight.t();
    at::Tensor y = at::empty({x.size(0), matrix.size(1)}, x.options());
    MatMulInto(y, x, matrix);
    options.add_up.Sum(y, "products");
    if (bias) y.add_(*bias);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("a linear layer");
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    // Detached: a deferred weight gradient would otherwise keep the full history of x alive.
    const at::Tensor x = saved[0].defined() ? saved[0].detach() : saved[0];
    const bool in_out = context->saved_data["in_out"].toBool();
    const at::Tensor gradient = upstream[0].contiguous();
    variable_list result(4);
    if (context->needs_input_grad(0)) result[0] = GradientOfInput(weight, gradient, in_out);
    if (context->needs_input_grad(1)) {
      result[1] = PutGradientOfWeight(weight, x, gradient, in_out);
    }
    if (saved[2].defined() && context->needs_input_grad(2)) {
      result[2] = PutGradientOfBias(saved[2], gradient);
    }
    return result;
  }
};

struct SharedOptions : torch::CustomClassHolder {
  std::vector<bool> in_out;          // of each weight
  std::vector<std::size_t> bias_at;  // index of its bias in the operands; 0: none
  bool trains = true;                // at least one weight trains
  tensor_parallel::TensorGroup users;
  std::string tag;
};

class SharedAffineFunction : public torch::autograd::Function<SharedAffineFunction> {
 public:
  // x [N, in]; the operands are the weights, followed by the biases that exist.
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList operands,
                               const c10::intrusive_ptr<SharedOptions>& options) {
    variable_list saved{options->trains ? x : at::Tensor()};
    saved.insert(saved.end(), operands.begin(), operands.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["options"] = c10::IValue::make_capsule(options);
    variable_list results;
    for (std::size_t i = 0; i < options->in_out.size(); ++i) {
      const at::Tensor matrix = options->in_out[i] ? operands[i] : operands[i].t();
      results.push_back(at::empty({x.size(0), matrix.size(1)}, x.options()));
      MatMulInto(results[i], x, matrix);
      if (const std::size_t bias = options->bias_at[i]; bias > 0) results[i].add_(operands[bias]);
    }
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("a linear layer");
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].defined() ? saved[0].detach() : saved[0];
    const auto capsule = context->saved_data["options"].toCapsule();
    const auto& options = *static_cast<const SharedOptions*>(capsule.get());
    variable_list gradients;
    for (const at::Tensor& each : upstream) gradients.push_back(each.contiguous());
    variable_list result(saved.size() + 1);  // plus nothing for the options
    std::optional<comm::Work> sum;
    if (context->needs_input_grad(0)) {
      result[0] = SumOfInputs(saved, gradients, options);
      sum = options.users.StartSum(result[0], options.tag);
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::size_t weight = 1 + i, bias = 1 + options.bias_at[i];  // after x
      if (context->needs_input_grad(weight)) {
        result[weight] = PutGradientOfWeight(saved[weight], x, gradients[i], options.in_out[i]);
      }
      if (bias > 1 && context->needs_input_grad(bias)) {
        result[bias] = PutGradientOfBias(saved[bias], gradients[i]);
      }
    }
    if (sum) sum->wait();
    return result;
  }

 private:
  // Sums in autograd's order: the product that was computed last comes first.
  static at::Tensor SumOfInputs(const variable_list& saved, const variable_list& gradients,
                                const SharedOptions& options) {
    at::Tensor sum;
    for (std::size_t i = gradients.size(); i-- > 0;) {
      const at::Tensor own = GradientOfInput(saved[1 + i], gradients[i], options.in_out[i]);
      sum.defined() ? sum.add_(own) : sum = own;
    }
    return sum;
  }
};

}  // namespace

void MatMulWidened(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta) {
  for (std::int64_t row = 0; row < out.size(0); row += kWidenedTile) {
    for (std::int64_t column = 0; column < out.size(1); column += kWidenedTile) {
      const at::Tensor tile = Tile(out, row, column);
      at::Tensor sum = at::empty(tile.sizes(), tile.options().dtype(at::kFloat));
      if (beta != 0.0F) {
        sum.copy_(tile);
      } else if (a.size(1) == 0) {
        sum.zero_();  // the inner dimension is empty
      }
      for (std::int64_t k = 0; k < a.size(1); k += kWidenedTile) {
        MatMulInto(sum, Tile(a, row, k).to(at::kFloat), Tile(b, k, column).to(at::kFloat),
                   k == 0 ? beta : 1.0F);
      }
      tile.copy_(sum);
    }
  }
}

void MatMulInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta) {
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {  // empty inner dimension: kernels differ in this case
    if (beta == 0.0F) out.zero_();
    return;
  }
  if (IsMultipliedWidened(a)) {
    MatMulWidened(out, a, b, beta);
  } else if (out.scalar_type() != a.scalar_type()) {
    const at::Tensor product = at::mm(a, b);
    beta == 0.0F ? out.copy_(product) : out.add_(product);
  } else if (UsesOneDnn(out)) {
    at::native::mkldnn_matmul(a, b, out, beta, /*alpha=*/1.0F);
  } else if (beta == 0.0F) {
    at::mm_out(out, a, b);
  } else {
    out.addmm_(a, b, beta);
  }
}

at::Tensor Affine(const at::Tensor& input, const at::Tensor& matrix, const at::Tensor& bias,
                  WeightLayout layout, const tensor_parallel::TensorGroup& add_up) {
  const bool in_out = layout == WeightLayout::kInOut;
  const at::Tensor x = precision::AutocastOperand(input);
  const at::Tensor weight = precision::AutocastOperand(matrix);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(in_out ? 1 : 0);
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const std::optional<at::Tensor> optional_bias =
      bias.defined() ? std::optional(precision::AutocastOperand(bias)) : std::nullopt;
  // Inside the function every tensor looks like a constant.
  const AffineOptions options{in_out, weight.requires_grad(), add_up};
  return AffineFunction::apply(rows, weight, optional_bias, options).view(shape);
}

std::vector<at::Tensor> SharedAffine(const at::Tensor& x, const std::vector<AffineWeights>& weights,
                                     const tensor_parallel::TensorGroup& users,
                                     std::string_view tag) {
  DS_CHECK(!at::autocast::is_autocast_enabled(x.device().type()));
  auto options = c10::make_intrusive<SharedOptions>();
  options->trains = false;
  options->users = users;
  options->tag = tag;
  std::vector<at::Tensor> operands;
  for (const AffineWeights& each : weights) {
    operands.push_back(each.weight);
    options->trains = options->trains || operands.back().requires_grad();
    options->in_out.push_back(each.layout == WeightLayout::kInOut);
  }
  for (const AffineWeights& each : weights) {
    options->bias_at.push_back(each.bias.defined() ? operands.size() : 0);
    if (each.bias.defined()) operands.push_back(each.bias);
  }
  std::vector<at::Tensor> results = SharedAffineFunction::apply(
      x.reshape({-1, x.size(-1)}), at::TensorList(operands), std::move(options));
  for (at::Tensor& result : results) {
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = result.size(1);
    result = result.view(shape);
  }
  return results;
}

}  // namespace ds::models
