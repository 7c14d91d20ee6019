#include "runtime/models/initialize.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "runtime/base/philox.h"
#include "runtime/device/parallel.h"

namespace ds::models {
namespace {

constexpr std::int64_t kGrain = 16384;  // least elements per thread

// Sets the elements in `zeros` to 0. `first` is the index of values[0] in the parameter.
void ClearPart(const FirstValue::Zeros& zeros, std::int64_t first, const at::Tensor& values) {
  const std::int64_t begin = std::max(zeros.first, first);
  const std::int64_t end = std::min(zeros.first + zeros.count, first + values.numel());
  if (begin < end) values.view(-1).narrow(0, begin - first, end - begin).zero_();
}

}  // namespace

FirstValue NormalInit::Describe(const std::string& name, std::int64_t dimensions) const {
  // Vectors are biases and the weights of norms.
  if (dimensions <= 1) return {.mean = name.ends_with("bias") ? 0.0 : vector_mean};
  const bool residual = std::any_of(residual_names.begin(), residual_names.end(),
                                    [&](const std::string& end) { return name.ends_with(end); });
  return {.std = residual ? residual_std : std};
}

NormalInit DescribeInit(const DecoderSpec& spec) {
  NormalInit init{.std = spec.initializer_range,
                  .vector_mean = spec.norm == NormKind::kRmsPlusOne ? 0.0 : 1.0};
  if (!spec.shrinks_residual_init) return init;
  // The GPT-2 paper's scheme: weights that add to the residual stream start smaller with depth.
  init.residual_std = spec.initializer_range / std::sqrt(2.0 * static_cast<double>(spec.layers));
  init.residual_names = {std::string(spec.names.attention_output) + ".weight",
                         std::string(spec.names.down) + ".weight"};
  return init;
}

void FillRange(const std::string& name, const FirstValue& described, std::uint64_t seed,
               const ElementRange& range) {
  c10::NoGradGuard no_grad;
  if (described.std == 0.0) {
    range.values.fill_(described.mean);
    return;
  }
  // If false, the values are drawn into a temporary tensor.
  const bool direct = range.values.is_cpu() && range.values.scalar_type() == at::kFloat &&
                      range.values.is_contiguous();
  const std::int64_t count = range.values.numel();
  const at::Tensor values = direct ? range.values : at::empty({count}, at::kFloat);
  auto* const out = values.mutable_data_ptr<float>();
  const std::uint64_t key = ExtendKey(seed, name);  // a random stream for each parameter
  const auto std = static_cast<float>(described.std), mean = static_cast<float>(described.mean);
  device::ParallelFor(0, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::span<float> part(out + begin, static_cast<std::size_t>(end - begin));
    DrawNormal(key, static_cast<std::uint64_t>(range.first + begin), part);
    for (float& value : part) value = value * std + mean;
  });
  ClearPart(described.zeros, range.first, values);
  if (!direct) range.values.copy_(values.view_as(range.values));
}

}  // namespace ds::models
