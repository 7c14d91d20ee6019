#include "runtime/models/initialize.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

namespace ds::models {
namespace {

// FNV-1a over the name, started from the seed; fixed for ever, because saved runs depend on it.
std::uint64_t StreamSeed(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash ^ (hash >> 32);  // the generator seeds itself from the low 32 bits
}

void FillNormal(at::Tensor& tensor, double std, at::Generator generator) {
  const bool direct =
      tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  at::Tensor values = direct ? tensor : at::empty(tensor.sizes(), at::kFloat);
  values.normal_(0.0, std, std::move(generator));
  if (!direct) tensor.copy_(values);
}

}  // namespace

void InitializeParameters(Block& block, const NormalInit& init, std::uint64_t seed) {
  c10::NoGradGuard no_grad;
  for (auto& item : block.named_parameters()) {
    const std::string& name = item.key();
    at::Tensor& parameter = item.value();
    if (parameter.dim() > 1) {
      const bool residual = !init.residual_name.empty() && name.ends_with(init.residual_name);
      const std::uint64_t stream = StreamSeed(seed, block.FullName(name));
      FillNormal(parameter, residual ? init.residual_std : init.std,
                 at::detail::createCPUGenerator(stream));
    } else {
      parameter.fill_(name.ends_with("bias") ? 0.0 : 1.0);
    }
  }
}

}  // namespace ds::models
