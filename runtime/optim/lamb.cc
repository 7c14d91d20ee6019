#include "runtime/optim/lamb.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/optim/cpu_blocks.h"
#include "runtime/optim/device_update.h"
#include "runtime/optim/gradient_norm.h"

namespace ds::optim {
namespace {

struct Squares {
  double parameter = 0.0;
  double direction = 0.0;
};

// What the parameters would move by at rate 1, where there are no kernels.
at::Tensor Direction(const LambCoefficients& c, const Part& part) {
  const at::Tensor root = at::sqrt(part.state[1].add(c.eps_inside)).add_(c.eps_outside);
  return part.state[0].div(root).add_(part.parameter, c.weight_decay);
}

// By kernels, added block by block in order, whatever the number of threads.
Squares SumSquares(const LambCoefficients& c, const Part& cut) {
  const std::int64_t blocks = (cut.parameter.numel() - 1) / FlatBlock::kMaxCount + 1;
  std::vector<Squares> partial(static_cast<std::size_t>(blocks));
  const float* const first = cut.parameter.const_data_ptr<float>();
  ForEachBlock(cut, [&](const FlatBlock& block) {
    std::array<float, FlatBlock::kMaxCount> direction;
    LambDirectionKernel(c, block, direction.data());
    const std::int64_t index = (block.parameter - first) / FlatBlock::kMaxCount;
    partial[static_cast<std::size_t>(index)] = {SumOfSquares(block.parameter, block.count),
                                                SumOfSquares(direction.data(), block.count)};
  });
  Squares sum;
  for (const Squares& each : partial) {
    sum.parameter += each.parameter;
    sum.direction += each.direction;
  }
  return sum;
}

// Row r of the result is rank r's `values`.
at::Tensor GatherRows(comm::Communicator& world, const at::Tensor& values) {
  const at::Tensor rows =
      at::empty({world.size() * values.numel()}, values.options().device(world.device()));
  world.AllGather(rows, values.to(world.device()));
  return rows.cpu().view({world.size(), values.numel()});
}

// The part without what only the first or only the second pass over it needs.
Part WithoutGradientAndCopy(Part cut) {
  cut.gradient = at::Tensor();
  cut.published = at::Tensor();
  return cut;
}

}  // namespace

std::span<const std::string_view> Lamb::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

LambCoefficients Lamb::Coefficients(const Update& update, const Part& part) const {
  const double beta1 = update.beta1.value_or(config().beta1);
  const bool inside = config().eps_inside_sqrt;
  return {.gradient_scale = static_cast<float>(update.gradient_scale),
          .weight_decay = static_cast<float>(WeightDecay(part)),
          .one_minus_beta1 = static_cast<float>(1.0 - beta1),
          .beta2 = static_cast<float>(config().beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - config().beta2),
          .eps_inside = static_cast<float>(inside ? config().eps : 0.0),
          .eps_outside = static_cast<float>(inside ? 0.0 : config().eps)};
}

void Lamb::UpdateState(const LambCoefficients& c, const Part& part) const {
  if (UsesKernels(part)) {
    Part state_only = part;
    state_only.published = at::Tensor();
    ForEachBlock(state_only, [&](const FlatBlock& block) { LambMomentsKernel(c, block); });
    return;
  }
  const at::Tensor gradient = ScaledGradient(c.gradient_scale, part);
  part.state[0].add_(gradient.sub(part.state[0]), c.one_minus_beta1);
  part.state[1].mul_(c.beta2).addcmul_(gradient, gradient, c.one_minus_beta2);
}

double Lamb::Ratio(double parameter_squares, double direction_squares) const {
  if (parameter_squares == 0.0 || direction_squares == 0.0) return 1.0;
  const double ratio = std::sqrt(parameter_squares) / std::sqrt(direction_squares);
  return std::clamp(ratio, config().min_coeff, config().max_coeff);
}

void Lamb::Begin(const Update& update, const RankParts& all) {
  at::Tensor squares = at::zeros({2 * all.parameter_count}, at::kDouble);
  double* const sums = squares.mutable_data_ptr<double>();
  for (const Part& part : all.parts) {
    const LambCoefficients c = Coefficients(update, part);
    UpdateState(c, part);
    for (const Segment& segment : part.owned) {
      const Part cut = WithoutGradientAndCopy(Cut(part, segment.start, segment.count));
      const Squares mine =
          UsesKernels(part) ? SumSquares(c, cut)
                            : Squares{SumOfSquares(cut.parameter), SumOfSquares(Direction(c, cut))};
      sums[2 * segment.parameter] += mine.parameter;
      sums[2 * segment.parameter + 1] += mine.direction;
    }
  }
  squares = GatherRows(*all.world, squares).sum(0);
  ratios_.clear();
  for (std::int64_t i = 0; i < all.parameter_count; ++i) {
    const double* const of_parameter = squares.const_data_ptr<double>() + 2 * i;
    ratios_.push_back(Ratio(of_parameter[0], of_parameter[1]));
  }
}

void Lamb::Apply(const Update& update, const Part& part) {
  const LambCoefficients c = Coefficients(update, part);
  const auto t = static_cast<double>(update.step);
  const double correction1 = 1.0 - std::pow(update.beta1.value_or(config().beta1), t);
  const double correction2 = 1.0 - std::pow(config().beta2, t);
  double lr = Rate(update, part);
  if (config().bias_correction) lr *= std::sqrt(correction2) / correction1;
  for (const Segment& segment : part.segments) {
    Part cut = Cut(part, segment.start, segment.count);
    cut.gradient = at::Tensor();
    const double factor = -lr * ratios_.at(static_cast<std::size_t>(segment.parameter));
    if (!UsesKernels(part)) {
      part.parameter.narrow(0, segment.start, segment.count).add_(Direction(c, cut), factor);
      continue;
    }
    ForEachBlock(cut, [&](const FlatBlock& block) {
      std::array<float, FlatBlock::kMaxCount> direction;
      LambDirectionKernel(c, block, direction.data());
      AddScaledKernel(static_cast<float>(factor), direction.data(), block);
    });
  }
  if (!UsesKernels(part)) Publish(part);
}

}  // namespace ds::optim
