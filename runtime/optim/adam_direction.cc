#include "runtime/optim/adam_direction.h"

#include <ATen/ops/sqrt.h>

#include <array>
#include <vector>

#include "runtime/optim/cpu_blocks.h"
#include "runtime/optim/device_update.h"
#include "runtime/optim/gradient_norm.h"

namespace ds::optim {
namespace {

// Added block by block in order.
DirectionSquares SumSquaresByKernels(const DirectionCoefficients& c, const Part& part) {
  Part values = part;
  values.gradient = at::Tensor();
  values.published = at::Tensor();
  const std::int64_t blocks = (part.parameter.numel() - 1) / FlatBlock::kMaxCount + 1;
  std::vector<DirectionSquares> partial(static_cast<std::size_t>(blocks));
  const float* const first = part.parameter.const_data_ptr<float>();
  ForEachBlock(values, [&](const FlatBlock& block) {
    std::array<float, FlatBlock::kMaxCount> direction;
    DirectionKernel(c, block, direction.data());
    const std::int64_t index = (block.parameter - first) / FlatBlock::kMaxCount;
    partial[static_cast<std::size_t>(index)] = {SumOfSquares(block.parameter, block.count),
                                                SumOfSquares(direction.data(), block.count)};
  });
  DirectionSquares sum;
  for (const DirectionSquares& each : partial) {
    sum.parameter += each.parameter;
    sum.direction += each.direction;
  }
  return sum;
}

}  // namespace

DirectionCoefficients MakeDirectionCoefficients(const config::OptimizerConfig& config,
                                                const Update& update,
                                                const DirectionSettings& settings) {
  const double beta1 = update.beta1.value_or(config.beta1);
  return {.gradient_scale = static_cast<float>(update.gradient_scale),
          .weight_decay = static_cast<float>(settings.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
          .eps_inside = static_cast<float>(settings.eps_inside ? config.eps : 0.0),
          .eps_outside = static_cast<float>(settings.eps_inside ? 0.0 : config.eps)};
}

void UpdateMoments(const DirectionCoefficients& c, const Part& part, bool kernels) {
  if (kernels) {
    Part state_only = part;
    state_only.published = at::Tensor();
    ForEachBlock(state_only, [&](const FlatBlock& block) { MomentsKernel(c, block); });
    return;
  }
  const at::Tensor gradient = ScaledGradient(c.gradient_scale, part);
  part.state[0].add_(gradient.sub(part.state[0]), c.one_minus_beta1);
  part.state[1].mul_(c.beta2).addcmul_(gradient, gradient, c.one_minus_beta2);
}

at::Tensor Direction(const DirectionCoefficients& c, const Part& part) {
  const at::Tensor root = at::sqrt(part.state[1].add(c.eps_inside)).add_(c.eps_outside);
  return part.state[0].div(root).add_(part.parameter, c.weight_decay);
}

DirectionSquares SumSquares(const DirectionCoefficients& c, const Part& part, bool kernels) {
  if (kernels) return SumSquaresByKernels(c, part);
  return {SumOfSquares(part.parameter), SumOfSquares(Direction(c, part))};
}

void StepAlongDirection(const DirectionCoefficients& c, const Part& part, double factor,
                        bool kernels) {
  if (!kernels) {
    part.parameter.add_(Direction(c, part), factor);
    return;
  }
  Part target = part;
  target.gradient = at::Tensor();
  ForEachBlock(target, [&](const FlatBlock& block) {
    std::array<float, FlatBlock::kMaxCount> direction;
    DirectionKernel(c, block, direction.data());
    AddScaledKernel(static_cast<float>(factor), direction.data(), block);
  });
}

}  // namespace ds::optim
