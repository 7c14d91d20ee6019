#include "runtime/optim/adam_direction.h"

#include <ATen/ops/empty.h>

#include <array>
#include <vector>

#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/kernels/gradient_norm.h"

namespace ds::optim {
namespace {

// Added block by block in order.
DirectionSquares SumSquaresByBlocks(const DirectionCoefficients& c, const Part& part) {
  Part values = part;
  values.gradient = at::Tensor();
  values.published = at::Tensor();
  const std::int64_t blocks = (part.parameter.numel() - 1) / FlatBlock::kMaxCount + 1;
  std::vector<DirectionSquares> partial(static_cast<std::size_t>(blocks));
  const float* const first = part.parameter.const_data_ptr<float>();
  ForEachBlock(values, [&](const FlatBlock& block) {
    std::array<float, FlatBlock::kMaxCount> direction;
    UpdateBlock(DirectionOp{c}, {.parameter = direction.data(),
                                 .gradient = block.parameter,
                                 .state = block.state,
                                 .count = block.count});
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
  return {.gradient_scale = static_cast<float>(update.gradient_scale),
          .weight_decay = static_cast<float>(settings.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - settings.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
          .eps_inside = static_cast<float>(settings.eps_inside ? config.eps : 0.0),
          .eps_outside = static_cast<float>(settings.eps_inside ? 0.0 : config.eps)};
}

void UpdateMoments(const DirectionCoefficients& c, const Part& part, FlatUpdate launch) {
  UpdatePart(MomentsOp{c}, part, launch);
}

at::Tensor Direction(const DirectionCoefficients& c, const Part& part, FlatUpdate launch) {
  Part target{.parameter = at::empty(part.parameter.sizes(), part.state[0].options()),
              .gradient = part.parameter,
              .state = {part.state[0], part.state[1]}};
  UpdatePart(DirectionOp{c}, target, launch);
  return target.parameter;
}

DirectionSquares SumSquares(const DirectionCoefficients& c, const Part& part, FlatUpdate launch) {
  if (launch == nullptr) return SumSquaresByBlocks(c, part);
  return {SumOfSquares(part.parameter), SumOfSquares(Direction(c, part, launch))};
}

void StepAlongDirection(const DirectionCoefficients& c, const Part& part, double factor,
                        FlatUpdate launch) {
  UpdatePart(StepAlongOp{c, static_cast<float>(factor)}, part, launch);
}

}  // namespace ds::optim
