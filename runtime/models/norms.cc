#include "runtime/models/norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>

#include "runtime/models/block.h"
#include "runtime/models/rms_norm.h"

namespace ds::models {

LayerNorm::LayerNorm(std::int64_t width, double epsilon, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({width}, options))),
      bias_(register_parameter("bias", UnmaterialisedParameter({width}, options))),
      epsilon_(epsilon) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x, weight_.sizes(), weight_, bias_, epsilon_);
}

RmsNorm::RmsNorm(const Shape& shape, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({shape.width}, options))),
      epsilon_(shape.epsilon),
      kind_(shape.kind) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  if (kind_ == NormKind::kRms) return NormaliseByRms(x, weight_, epsilon_);
  const at::Tensor weight = weight_.to(at::kFloat);
  const at::Tensor factor = kind_ == NormKind::kRmsPlusOne ? weight + 1.0 : weight;
  return NormaliseByRms(x.to(at::kFloat), factor, epsilon_).to(x.scalar_type());
}

std::shared_ptr<Norm> MakeNorm(const DecoderSpec& spec, std::int64_t width,
                               const at::TensorOptions& options) {
  if (spec.norm == NormKind::kLayer) {
    return std::make_shared<LayerNorm>(width, spec.norm_epsilon, options);
  }
  const RmsNorm::Shape shape{.width = width, .epsilon = spec.norm_epsilon, .kind = spec.norm};
  return std::make_shared<RmsNorm>(shape, options);
}

}  // namespace ds::models
