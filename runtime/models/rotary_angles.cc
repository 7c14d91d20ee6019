#include "runtime/models/rotary_angles.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>

#include "runtime/models/rotary.h"
#include "runtime/models/token_places.h"

namespace ds::models {
void RotaryAngles::Prepare(const at::Tensor& x, const Batch& batch) {
  const at::Tensor& given = FindTensor(batch, "positions");
  const at::Tensor& documents = FindTensor(batch, "documents");
  const bool fits = cos_.defined() && tokens_ == x.size(2) && positions_.is_same(given) &&
                    documents_.is_same(documents) && cos_.device() == x.device() &&
                    cos_.scalar_type() == x.scalar_type();
  if (fits) return;
  positions_ = given;
  documents_ = documents;
  tokens_ = x.size(2);
  const at::Tensor positions = FindPositions(batch);
  std::int64_t length = tokens_;
  if (DependsOnLength(rope_) && positions.dim() == 2) {
    length = positions.max().item<std::int64_t>() + 1;
  }
  const at::Tensor frequencies = at::tensor(RopeFrequencies(rope_, head_width_, length));
  const at::Tensor angles =
      positions.to(at::kFloat).unsqueeze(-1) * frequencies.to(positions.device());
  cos_ = (at::cos(angles) * rope_.attention_factor).to(x.scalar_type());
  sin_ = (at::sin(angles) * rope_.attention_factor).to(x.scalar_type());
}

at::Tensor RotaryAngles::Turn(const at::Tensor& x, const Batch& batch) {
  Prepare(x, batch);
  return ApplyRotary(x, cos_, sin_);
}

}  // namespace ds::models
