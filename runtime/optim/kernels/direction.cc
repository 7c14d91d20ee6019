#include "runtime/optim/kernels/direction.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "runtime/optim/kernels/flat_block.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/kernels/gradient_norm.h"

namespace ds::optim {
namespace {

// Adds the squares block by block, in order.
DirectionSquares SumSquaresByBlocks(const DirectionCoefficients& c, const Part& part) {
  const FlatViews views = ViewPart({.parameter = part.parameter, .state = part.state});
  const std::int64_t blocks = (views.count - 1) / FlatBlock::kMaxCount + 1;
  std::vector<DirectionSquares> partial(static_cast<std::size_t>(blocks));
  ForEachBlock(views, [&](const FlatBlock& block) {
    std::array<float, FlatBlock::kMaxCount> direction;
    UpdateBlock(DirectionOp{c}, {.count = block.count,
                                 .parameter = direction.data(),
                                 .gradient = block.parameter,
                                 .state = block.state});
    partial[static_cast<std::size_t>(block.start / FlatBlock::kMaxCount)] = {
        SumOfSquares(block.parameter, block.count), SumOfSquares(direction.data(), block.count)};
  });
  DirectionSquares sum;
  for (const DirectionSquares& each : partial) {
    sum.parameter += each.parameter;
    sum.direction += each.direction;
  }
  return sum;
}

}  // namespace

DirectionCoefficients MakeDirectionCoefficients(const PartRates& rates,
                                                const DirectionSettings& settings) {
  return {.gradient_scale = static_cast<float>(rates.gradient_scale),
          .weight_decay = static_cast<float>(rates.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - rates.beta1),
          .beta2 = static_cast<float>(settings.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - settings.beta2),
          .eps_inside = static_cast<float>(settings.eps_inside ? settings.eps : 0.0),
          .eps_outside = static_cast<float>(settings.eps_inside ? 0.0 : settings.eps)};
}

void UpdateMoments(const DirectionCoefficients& c, const Part& part) {
  UpdatePart(MomentsOp{c}, part);
}

at::Tensor ComputeDirection(const DirectionCoefficients& c, const Part& part) {
  const Part target{.parameter = at::empty(part.parameter.sizes(), part.state[0].options()),
                    .gradient = part.parameter,
                    .state = {part.state[0], part.state[1]},
                    .launch = part.launch};
  UpdatePart(DirectionOp{c}, target);
  return target.parameter;
}

DirectionSquares SumSquares(const DirectionCoefficients& c, const Part& part) {
  if (part.launch == nullptr) return SumSquaresByBlocks(c, part);
  return {SumOfSquares(part.parameter), SumOfSquares(ComputeDirection(c, part))};
}

double ComputeTrustRatio(const DirectionSquares& squares, double least, double most) {
  if (squares.parameter == 0.0 || squares.direction == 0.0) return 1.0;
  const double ratio = std::sqrt(squares.parameter) / std::sqrt(squares.direction);
  return std::clamp(ratio, least, most);
}

void StepAlongDirection(const DirectionCoefficients& c, const Part& part, double factor) {
  UpdatePart(StepAlongOp{c, static_cast<float>(factor)}, part);
}

}  // namespace ds::optim
