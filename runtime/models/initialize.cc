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

}  // namespace

void FillNormal(at::Tensor& tensor, const NormalFill& fill) {
  c10::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(StreamSeed(fill.seed, fill.name));
  const bool direct =
      tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  at::Tensor values = direct ? tensor : at::empty(tensor.sizes(), at::kFloat);
  values.normal_(0.0, fill.std, generator);
  if (!direct) tensor.copy_(values);
}

}  // namespace ds::models
