#include "runtime/models/layers/norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "runtime/autograd/put_gradient.h"
#include "runtime/device/kernels/first_derivative.h"
#include "runtime/models/block.h"
#include "runtime/models/kernels/row_loops.h"
#include "runtime/models/kernels/rows.h"

namespace ds::models {

LayerNorm::LayerNorm(std::int64_t width, double epsilon, const at::TensorOptions& options,
                     const tensor_parallel::TensorGroup& users)
    : weight_(register_parameter("weight", UnmaterialisedParameter({width}, options))),
      bias_(register_parameter("bias", UnmaterialisedParameter({width}, options))),
      epsilon_(epsilon),
      users_(users) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x, weight_.sizes(), users_.Share(weight_, "norm"),
                        users_.Share(bias_, "norm"), epsilon_);
}

RmsNorm::RmsNorm(const Shape& shape, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({shape.width}, options))),
      epsilon_(shape.epsilon),
      kind_(shape.kind),
      users_(shape.users) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  const at::Tensor weight = users_.Share(weight_, "norm");
  if (kind_ == NormKind::kRms) return NormaliseByRms(x, weight, epsilon_);
  const at::Tensor wide = weight.to(at::kFloat);
  const at::Tensor factor = kind_ == NormKind::kRmsPlusOne ? wide + 1.0 : wide;
  return NormaliseByRms(x.to(at::kFloat), factor, epsilon_).to(x.scalar_type());
}

std::shared_ptr<Norm> MakeNorm(const DecoderSpec& spec, std::int64_t width,
                               const at::TensorOptions& options,
                               const tensor_parallel::TensorGroup& users) {
  if (spec.norm == NormKind::kLayer) {
    return std::make_shared<LayerNorm>(width, spec.norm_epsilon, options, users);
  }
  const RmsNorm::Shape shape{
      .width = width, .epsilon = spec.norm_epsilon, .kind = spec.norm, .users = users};
  return std::make_shared<RmsNorm>(shape, options);
}

namespace {

// Number of rows that sum their contributions to the weight's gradient together. It is fixed, so
// that the result does not depend on the number of threads.
constexpr std::int64_t kRowsInSum = 64;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// RMSNorm of contiguous rows [N, width] on the CPU.
class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor y = at::empty_like(x);
    const at::Tensor scales = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    WithElementType(x, [&]<typename Scalar>(Scalar) {
      ForEachPart(x.size(0), x.size(1), [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) {
          MutableElements<float>(scales)[i] = RmsNormRow(
              RowAt<Scalar>(x, weight, i), epsilon, MutableElements<Scalar>(y) + i * x.size(1));
        }
      });
    });
    context->save_for_backward({x, weight, scales});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("RMSNorm");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scales = saved[2];
    const at::Tensor arrived = upstream[0].contiguous(), gradient = at::empty_like(x);
    const std::int64_t rows = x.size(0), width = x.size(1);
    const std::int64_t parts = (rows + kRowsInSum - 1) / kRowsInSum;
    at::Tensor sums;
    if (context->needs_input_grad(1)) sums = at::zeros({parts, width}, scales.options());
    WithElementType(x, [&]<typename Scalar>(Scalar) {
      ForEachPart(parts, kRowsInSum * width, [&](std::int64_t first, std::int64_t count) {
        const std::int64_t end = std::min(rows, (first + count) * kRowsInSum);
        for (std::int64_t i = first * kRowsInSum; i < end; ++i) {
          float* sum =
              sums.defined() ? MutableElements<float>(sums) + i / kRowsInSum * width : nullptr;
          RmsNormRowBackward(RowAt<Scalar>(x, weight, i), Elements<float>(scales)[i],
                             Elements<Scalar>(arrived) + i * width,
                             {.x = MutableElements<Scalar>(gradient) + i * width, .weight = sum});
        }
      });
    });
    if (!sums.defined()) return {gradient, {}, {}};
    const auto add_rows = [sums](at::Tensor& target, float beta) {
      const at::Tensor sum = sums.sum(0).to(target.scalar_type());
      beta == 0.0F ? target.copy_(sum) : target.add_(sum);
    };
    return {gradient, gradients::PutOrMakeGradient(weight, add_rows), {}};
  }

 private:
  template <typename Scalar>
  static NormedRow<Scalar> RowAt(const at::Tensor& x, const at::Tensor& weight, std::int64_t row) {
    const std::int64_t width = x.size(1);
    return {Elements<Scalar>(x) + row * width, Elements<Scalar>(weight), width};
  }
};

// Order of operations as in transformers: normalise in fp32, round to x's dtype, then scale.
at::Tensor NormaliseByOperators(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon);
  return (wide * scale).to(x.scalar_type()) * weight;
}

}  // namespace

at::Tensor NormaliseByRms(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!HasRowLoops(x) || x.scalar_type() != weight.scalar_type()) {
    return NormaliseByOperators(x, weight, epsilon);
  }
  const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
  return RmsNormFunction::apply(rows, weight.contiguous(), epsilon).view(x.sizes());
}

}  // namespace ds::models
