#include "runtime/models/matmul.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "runtime/device/isa_probe.h"
#include "runtime/gradients/put_gradient.h"
#include "runtime/models/first_derivative.h"

namespace at::native {
// In LibTorch, but in none of its headers. Weak: a version without this very signature lacks the
// name, and the products then stay with MKL.
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

// AMD's AVX-512 multiplies bf16 twice as fast as fp32. What other kinds of processors do has not
// been measured.
bool MultipliesFp32FasterThanBf16() {
#if defined(__x86_64__)
  const bool has_fast_bf16 = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
  return !has_fast_bf16 && !device::MayUseAmx();
#else
  return false;
#endif
}

bool LacksFp16Products() {
#if defined(__x86_64__)
  return !__builtin_cpu_supports("avx512fp16");
#else
  return false;
#endif
}

bool IsMultipliedWidened(const at::Tensor& operand) {
  static const bool pays_bf16 = MultipliesFp32FasterThanBf16(), pays_fp16 = LacksFp16Products();
  if (!operand.is_cpu()) return false;
  return (pays_bf16 && operand.scalar_type() == at::kBFloat16) ||
         (pays_fp16 && operand.scalar_type() == at::kHalf);
}

// What is widened at once has at most this many rows and columns: 16 MiB in fp32.
constexpr std::int64_t kTile = 2048;

at::Tensor Tile(const at::Tensor& matrix, std::int64_t row, std::int64_t column) {
  return matrix.narrow(0, row, std::min(kTile, matrix.size(0) - row))
      .narrow(1, column, std::min(kTile, matrix.size(1) - column));
}

struct AffineOptions {
  bool in_out = false;
  bool trains = true;  // the weight, whose gradient reads x
  tensor_parallel::Group add_up;
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
    CheckIsFirstDerivative("a linear layer");
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    // A gradient of weights that comes later would hold, by the history of x, all that is before.
    const at::Tensor x = saved[0].defined() ? saved[0].detach() : saved[0];
    const bool in_out = context->saved_data["in_out"].toBool();
    const at::Tensor gradient = upstream[0].contiguous();
    variable_list result(4);
    if (context->needs_input_grad(0)) {
      const at::Tensor matrix = in_out ? weight.t() : weight;
      result[0] = at::empty({gradient.size(0), matrix.size(1)}, gradient.options());
      MatMulInto(result[0], gradient, matrix);
    }
    if (context->needs_input_grad(1)) {
      result[1] = gradients::PutOrMakeGradient(weight, [=](at::Tensor& place, float beta) {
        MatMulInto(place, in_out ? x.t() : gradient.t(), in_out ? gradient : x, beta);
      });
    }
    if (saved[2].defined() && context->needs_input_grad(2)) {
      result[2] = gradients::PutOrMakeGradient(saved[2], [=](at::Tensor& place, float beta) {
        beta == 0.0F ? at::sum_out(place, gradient, at::IntArrayRef{0})
                     : place.add_(gradient.sum(0));
      });
    }
    return result;
  }
};

}  // namespace

void MatMulWidened(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta) {
  for (std::int64_t row = 0; row < out.size(0); row += kTile) {
    for (std::int64_t column = 0; column < out.size(1); column += kTile) {
      const at::Tensor tile = Tile(out, row, column);
      at::Tensor sum = at::empty(tile.sizes(), tile.options().dtype(at::kFloat));
      if (beta != 0.0F) {
        sum.copy_(tile);
      } else if (a.size(1) == 0) {
        sum.zero_();  // a product over no elements
      }
      for (std::int64_t k = 0; k < a.size(1); k += kTile) {
        MatMulInto(sum, Tile(a, row, k).to(at::kFloat), Tile(b, k, column).to(at::kFloat),
                   k == 0 ? beta : 1.0F);
      }
      tile.copy_(sum);
    }
  }
}

void MatMulInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta) {
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {  // a sum of no products: kernels differ in what they do then
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

at::Tensor AutocastOperand(const at::Tensor& operand) {
  const c10::DeviceType device = operand.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return operand;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), operand, device);
}

at::Tensor Affine(const at::Tensor& input, const at::Tensor& matrix, const at::Tensor& bias,
                  WeightLayout layout, const tensor_parallel::Group& add_up) {
  const bool in_out = layout == WeightLayout::kInOut;
  const at::Tensor x = AutocastOperand(input);
  const at::Tensor weight = AutocastOperand(matrix);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(in_out ? 1 : 0);
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const std::optional<at::Tensor> optional_bias =
      bias.defined() ? std::optional(AutocastOperand(bias)) : std::nullopt;
  // In the function every tensor looks like a constant.
  const AffineOptions options{in_out, weight.requires_grad(), add_up};
  return AffineFunction::apply(rows, weight, optional_bias, options).view(shape);
}

}  // namespace ds::models
