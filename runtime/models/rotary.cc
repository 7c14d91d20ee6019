#include "runtime/models/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <numbers>

namespace ds::models {
namespace {

// Llama 3's stretching: wavelengths far beyond the original context are slowed by `factor`, short
// ones kept, those between interpolated (transformers' _compute_llama3_parameters).
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double turns = rope.original_positions * frequency / (2.0 * std::numbers::pi);
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  if (turns > rope.high_frequency_factor) return frequency;
  const double smooth = (turns - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

Rotary::Rotary(const RopeConfig& rope, std::int64_t head_width)
    : frequencies_(at::empty({head_width / 2}, at::kFloat)) {
  auto* out = frequencies_.data_ptr<float>();
  for (std::int64_t i = 0; i < head_width / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(head_width);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.scaling == RopeConfig::Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeConfig::Scaling::kLlama3) frequency = Llama3Frequency(rope, frequency);
    out[i] = static_cast<float>(frequency);
  }
}

void Rotary::Prepare(const at::Tensor& x) {
  const std::int64_t tokens = x.size(2);
  const bool fits = cos_.defined() && cos_.size(0) == tokens && cos_.device() == x.device() &&
                    cos_.scalar_type() == x.scalar_type();
  if (fits) return;
  const at::Tensor positions = at::arange(tokens, frequencies_.options());
  const at::Tensor half = at::outer(positions, frequencies_);
  const at::Tensor angles = at::cat({half, half}, /*dim=*/1).to(x.device());
  cos_ = at::cos(angles).to(x.scalar_type());
  sin_ = at::sin(angles).to(x.scalar_type());
}

at::Tensor Rotary::Apply(const at::Tensor& x) {
  Prepare(x);
  const auto halves = x.chunk(2, /*dim=*/-1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, /*dim=*/-1);
  return x * cos_ + turned * sin_;
}

}  // namespace ds::models
