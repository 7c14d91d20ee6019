#include "runtime/models/norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>

#include "runtime/models/block.h"
#include "runtime/models/rms_norm.h"

namespace ds::models {

LayerNorm::LayerNorm(std::int64_t width, double epsilon, const at::TensorOptions& options,
                     const tensor_parallel::Group& users)
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
                               const tensor_parallel::Group& users) {
  if (spec.norm == NormKind::kLayer) {
    return std::make_shared<LayerNorm>(width, spec.norm_epsilon, options, users);
  }
  const RmsNorm::Shape shape{
      .width = width, .epsilon = spec.norm_epsilon, .kind = spec.norm, .users = users};
  return std::make_shared<RmsNorm>(shape, options);
}

}  // namespace ds::models
