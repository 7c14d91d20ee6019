#include "runtime/optim/adam.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/optim/adam_kernel.h"

namespace ds::optim {
namespace {

AdamCoefficients MakeCoefficients(const config::OptimizerConfig& config, const AdamStep& step) {
  const auto t = static_cast<double>(step.step);
  const double correction1 = config.bias_correction ? 1.0 - std::pow(config.beta1, t) : 1.0;
  const double correction2 = config.bias_correction ? 1.0 - std::pow(config.beta2, t) : 1.0;
  const double decoupled = config.adam_w_mode ? config.weight_decay : 0.0;
  return {.gradient_scale = static_cast<float>(step.gradient_scale),
          .decay_factor = static_cast<float>(1.0 - step.lr * decoupled),
          .l2 = static_cast<float>(config.adam_w_mode ? 0.0 : config.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
          .step_size = static_cast<float>(step.lr / correction1),
          .inverse_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<float>(config.eps)};
}

// A block that stays in the first-level cache with its four streams.
constexpr std::int64_t kBlock = 1024;

struct CpuViews {
  AdamPointers at;  // gradient is null when it is bf16
  const c10::BFloat16* gradient_bf16;
  c10::BFloat16* published;
};

void AdamBlock(const AdamCoefficients& c, const CpuViews& views, std::int64_t start,
               std::int64_t count) {
  std::array<float, kBlock> converted;
  const float* gradient = views.at.gradient + start;
  if (views.gradient_bf16 != nullptr) {
    std::copy_n(views.gradient_bf16 + start, count, converted.begin());
    gradient = converted.data();
  }
  UpdateAdam(c,
             {.parameter = views.at.parameter + start,
              .gradient = gradient,
              .exp_avg = views.at.exp_avg + start,
              .exp_avg_sq = views.at.exp_avg_sq + start},
             count);
  if (views.published != nullptr) {
    std::copy_n(views.at.parameter + start, count, views.published + start);
  }
}

void AdamOnCpu(const AdamCoefficients& c, const AdamViews& views) {
  const bool bf16 = views.gradient.scalar_type() == at::kBFloat16;
  const CpuViews cpu{
      .at = {.parameter = views.parameter.data_ptr<float>(),
             .gradient = bf16 ? nullptr : views.gradient.const_data_ptr<float>(),
             .exp_avg = views.exp_avg.data_ptr<float>(),
             .exp_avg_sq = views.exp_avg_sq.data_ptr<float>()},
      .gradient_bf16 = bf16 ? views.gradient.const_data_ptr<c10::BFloat16>() : nullptr,
      .published = views.published.defined() ? views.published.data_ptr<c10::BFloat16>() : nullptr};
  const std::int64_t count = views.parameter.numel();
  at::parallel_for(0, (count + kBlock - 1) / kBlock, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      AdamBlock(c, cpu, block * kBlock, std::min(kBlock, count - block * kBlock));
    }
  });
}

// LibTorch's fused kernel. Without bias correction the step count is so large that beta^t is 0.
void AdamOnDevice(const config::OptimizerConfig& config, const AdamStep& step,
                  const AdamViews& views) {
  constexpr double kEndlessSteps = 1e9;
  at::Tensor gradient = views.gradient.to(at::kFloat);
  if (step.gradient_scale != 1.0) gradient.mul_(step.gradient_scale);
  const double count = config.bias_correction ? static_cast<double>(step.step) : kEndlessSteps;
  const at::Tensor steps = at::full({}, count, views.parameter.options());
  const std::vector<at::Tensor> parameter{views.parameter}, m{views.exp_avg}, v{views.exp_avg_sq};
  if (config.adam_w_mode) {
    at::_fused_adamw_(parameter, {gradient}, m, v, {}, {steps}, step.lr, config.beta1, config.beta2,
                      config.weight_decay, config.eps, /*amsgrad=*/false, /*maximize=*/false);
  } else {
    at::_fused_adam_(parameter, {gradient}, m, v, {}, {steps}, step.lr, config.beta1, config.beta2,
                     config.weight_decay, config.eps, /*amsgrad=*/false, /*maximize=*/false);
  }
  if (views.published.defined()) views.published.copy_(views.parameter);
}

}  // namespace

void ApplyAdam(const config::OptimizerConfig& config, const AdamStep& step,
               const AdamViews& views) {
  const std::int64_t count = views.parameter.numel();
  DS_CHECK(views.gradient.numel() == count && views.exp_avg.numel() == count &&
           views.exp_avg_sq.numel() == count);
  if (views.parameter.is_cpu()) {
    AdamOnCpu(MakeCoefficients(config, step), views);
  } else {
    AdamOnDevice(config, step, views);
  }
}

}  // namespace ds::optim
