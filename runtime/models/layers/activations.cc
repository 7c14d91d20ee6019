#include "runtime/models/layers/activations.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/device/kernels/first_derivative.h"
#include "runtime/models/kernels/row_loops.h"
#include "runtime/models/kernels/rows.h"

namespace ds::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// LibTorch's operator takes six times as long.
class GeluTanhFunction : public torch::autograd::Function<GeluTanhFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    const at::Tensor y = at::empty_like(x);
    WithElementType(x, [&]<typename Scalar>(Scalar) {
      ForEachPart(x.numel(), 1, [&](std::int64_t first, std::int64_t count) {
        GeluTanh(Elements<Scalar>(x) + first, count, MutableElements<Scalar>(y) + first);
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    kernels::CheckIsFirstDerivative("GELU");
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor upstream = gradients[0].contiguous();
    const at::Tensor gradient = at::empty_like(x);
    WithElementType(x, [&]<typename Scalar>(Scalar) {
      ForEachPart(x.numel(), 1, [&](std::int64_t first, std::int64_t count) {
        GeluTanhBackward(Elements<Scalar>(x) + first, Elements<Scalar>(upstream) + first, count,
                         MutableElements<Scalar>(gradient) + first);
      });
    });
    return {gradient};
  }
};

template <typename Scalar>
GatePair<const Scalar> PairAt(const at::Tensor& gate, const at::Tensor& up, std::int64_t first) {
  return {Elements<Scalar>(gate) + first, Elements<Scalar>(up) + first};
}

class SwiGluFunction : public torch::autograd::Function<SwiGluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    const at::Tensor y = at::empty_like(gate);
    WithElementType(gate, [&]<typename Scalar>(Scalar) {
      ForEachPart(gate.numel(), 1, [&](std::int64_t first, std::int64_t count) {
        SwiGlu(PairAt<Scalar>(gate, up, first), count, MutableElements<Scalar>(y) + first);
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    kernels::CheckIsFirstDerivative("SwiGLU");
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const at::Tensor upstream = gradients[0].contiguous();
    const at::Tensor of_gate = at::empty_like(gate), of_up = at::empty_like(up);
    WithElementType(gate, [&]<typename Scalar>(Scalar) {
      ForEachPart(gate.numel(), 1, [&](std::int64_t first, std::int64_t count) {
        SwiGluBackward(
            PairAt<Scalar>(gate, up, first), Elements<Scalar>(upstream) + first, count,
            {MutableElements<Scalar>(of_gate) + first, MutableElements<Scalar>(of_up) + first});
      });
    });
    return {of_gate, of_up};
  }
};

}  // namespace

at::Tensor Activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kGeluTanh:
      return HasRowLoops(x) && x.is_contiguous() ? GeluTanhFunction::apply(x) : at::gelu(x, "tanh");
    case Activation::kGeluErf:
      return at::gelu(x);
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
  }
  return x;
}

at::Tensor GatedActivation(Activation activation, const at::Tensor& gate, const at::Tensor& up) {
  const bool is_one_pass = activation == Activation::kSilu && HasRowLoops(gate) &&
                           gate.scalar_type() == up.scalar_type() && gate.sizes() == up.sizes();
  if (!is_one_pass) return Activate(activation, gate) * up;
  return SwiGluFunction::apply(gate.contiguous(), up.contiguous());
}

}  // namespace ds::models
