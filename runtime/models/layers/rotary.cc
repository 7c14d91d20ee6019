#include "runtime/models/layers/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/device/kernels/first_derivative.h"
#include "runtime/device/transfers.h"
#include "runtime/models/kernels/row_loops.h"
#include "runtime/models/kernels/rows.h"
#include "runtime/models/layers/token_positions.h"

namespace ds::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor RotateByOperators(const at::Tensor& x, at::Tensor cos, at::Tensor sin) {
  const std::int64_t half = cos.size(-1);
  if (cos.dim() == 3) {  // one table per sample, shared by its heads
    cos = cos.unsqueeze(1);
    sin = sin.unsqueeze(1);
  }
  const at::Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  return at::cat({first * cos - second * sin, second * cos + first * sin,
                  x.narrow(3, 2 * half, x.size(3) - 2 * half)},
                 /*dim=*/3);
}

template <typename Scalar>
void RotateToken(const at::Tensor& x, const at::Tensor& y, std::int64_t token, bool of_samples,
                 TurningAngles<Scalar> angles) {
  const std::int64_t sample = token / x.size(2), position = token % x.size(2);
  const std::int64_t row = of_samples ? token : position;
  angles.cos += row * angles.half;
  angles.sin += row * angles.half;
  RotateRows({.from = Elements<Scalar>(x) + sample * x.stride(0) + position * x.stride(2),
              .to = MutableElements<Scalar>(y) + sample * y.stride(0) + position * y.stride(2),
              .from_stride = x.stride(1),
              .to_stride = y.stride(1),
              .rows = x.size(1),
              .width = x.size(3)},
             angles);
}

at::Tensor Rotate(const at::Tensor& rows, const at::Tensor& cos, const at::Tensor& sin,
                  float direction) {
  const at::Tensor x = rows.stride(3) == 1 ? rows : rows.contiguous();
  // Same memory order as a product's output: the heads of a token are contiguous.
  const at::Tensor y =
      at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  WithElementType(x, [&]<typename Scalar>(Scalar) {
    const TurningAngles<Scalar> angles{.cos = Elements<Scalar>(cos),
                                       .sin = Elements<Scalar>(sin),
                                       .half = cos.size(-1),
                                       .direction = direction};
    ForEachPart(x.size(0) * x.size(2), x.size(1) * x.size(3),
                [&](std::int64_t first, std::int64_t count) {
                  for (std::int64_t i = 0; i < count; ++i)
                    RotateToken(x, y, first + i, cos.dim() == 3, angles);
                });
  });
  return y;
}

class RotaryFunction : public torch::autograd::Function<RotaryFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return Rotate(x, cos, sin, /*direction=*/1.0F);
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("rotary embedding");
    const auto saved = context->get_saved_variables();
    return {Rotate(upstream[0], saved[0], saved[1], /*direction=*/-1.0F), {}, {}};
  }
};

}  // namespace

at::Tensor ApplyRotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const bool of_samples = cos.dim() == 3;
  TORCH_CHECK(x.dim() == 4 && (cos.dim() == 2 || (of_samples && cos.size(0) == x.size(0))) &&
                  cos.sizes() == sin.sizes() && cos.size(-2) == x.size(2) &&
                  2 * cos.size(-1) <= x.size(3),
              "rotary angles of shape ", cos.sizes(), " do not fit heads of shape ", x.sizes());
  const bool one_dtype =
      x.scalar_type() == cos.scalar_type() && x.scalar_type() == sin.scalar_type();
  if (!HasRowLoops(x) || !one_dtype) return RotateByOperators(x, cos, sin);
  return RotaryFunction::apply(x, cos.contiguous(), sin.contiguous());
}

// Without a known longest document the length is read from the positions. Positions counted within
// documents are less than the number of tokens. If the angles are the same for all lengths up to
// that, the device need not be read, which would block.
std::vector<float> RotaryAngles::FindFrequencies(const at::Tensor& positions,
                                                 bool are_counted) const {
  if (longest_ > 0) return RopeFrequencies(rope_, head_width_, longest_);
  const bool all_alike = are_counted && HaveSameFrequencies(rope_, 1, tokens_);
  const bool asks = DependsOnLength(rope_) && positions.dim() == 2 && !all_alike;
  return RopeFrequencies(rope_, head_width_,
                         asks ? positions.max().item<std::int64_t>() + 1 : tokens_);
}

void RotaryAngles::Prepare(const at::Tensor& x, const Batch& batch, std::int64_t longest,
                           std::int64_t tokens) {
  const at::Tensor& given = FindTensor(batch, "positions");
  const at::Tensor& documents = FindTensor(batch, "documents");
  const bool fits = cos_.defined() && tokens_ == tokens && longest_ == longest &&
                    positions_.is_same(given) && documents_.is_same(documents) &&
                    cos_.device() == x.device() && cos_.scalar_type() == x.scalar_type();
  if (fits) return;
  positions_ = given;
  documents_ = documents;
  tokens_ = tokens;
  longest_ = longest;
  const at::Tensor positions = FindPositions(batch);
  const at::Tensor frequencies = device::BringTo(
      at::tensor(FindFrequencies(positions, /*are_counted=*/!given.defined())), x.device());
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * frequencies;
  cos_ = (at::cos(angles) * rope_.attention_factor).to(x.scalar_type());
  sin_ = (at::sin(angles) * rope_.attention_factor).to(x.scalar_type());
}

at::Tensor RotaryAngles::Rotate(const at::Tensor& x, const Batch& batch, std::int64_t longest) {
  return Rotate(x, batch, longest, /*first=*/0, x.size(2));
}

at::Tensor RotaryAngles::Rotate(const at::Tensor& x, const Batch& batch, std::int64_t longest,
                                std::int64_t first, std::int64_t tokens) {
  Prepare(x, batch, longest, tokens);
  const std::int64_t count = x.size(2);
  return ApplyRotary(x, cos_.narrow(-2, first, count), sin_.narrow(-2, first, count));
}

}  // namespace ds::models
