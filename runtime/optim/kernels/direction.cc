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
DirectionSquares SumSquaresByBlocks(const DirectionCoefficients& c, const OptimizerSlice& slice) {
  const FlatViews views = ViewSlice({.parameter = slice.parameter, .state = slice.state});
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

DirectionCoefficients MakeDirectionCoefficients(const SliceRates& rates,
                                                const DirectionSettings& settings) {
  return {.gradient_scale = static_cast<float>(rates.gradient_scale),
          .weight_decay = static_cast<float>(rates.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - rates.beta1),
          .beta2 = static_cast<float>(settings.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - settings.beta2),
          .eps_inside = static_cast<float>(settings.eps_inside ? settings.eps : 0.0),
          .eps_outside = static_cast<float>(settings.eps_inside ? 0.0 : settings.eps)};
}

void UpdateMoments(const DirectionCoefficients& c, const OptimizerSlice& slice) {
  UpdateSlice(MomentsOp{c}, slice);
}

at::Tensor ComputeDirection(const DirectionCoefficients& c, const OptimizerSlice& slice) {
  const OptimizerSlice target{
      .parameter = at::empty(slice.parameter.sizes(), slice.state[0].options()),
      .gradient = slice.parameter,
      .state = {slice.state[0], slice.state[1]},
      .launch = slice.launch};
  UpdateSlice(DirectionOp{c}, target);
  return target.parameter;
}

DirectionSquares SumSquares(const DirectionCoefficients& c, const OptimizerSlice& slice) {
  if (slice.launch == nullptr) return SumSquaresByBlocks(c, slice);
  return {SumOfSquares(slice.parameter), SumOfSquares(ComputeDirection(c, slice))};
}

double ComputeTrustRatio(const DirectionSquares& squares, double least, double most) {
  if (squares.parameter == 0.0 || squares.direction == 0.0) return 1.0;
  const double ratio = std::sqrt(squares.parameter) / std::sqrt(squares.direction);
  return std::clamp(ratio, least, most);
}

void StepAlongDirection(const DirectionCoefficients& c, const OptimizerSlice& slice,
                        double factor) {
  UpdateSlice(StepAlongOp{c, static_cast<float>(factor)}, slice);
}

}  // namespace ds::optim
