#include "runtime/optim/lamb.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace ds::optim {
namespace {

// Row r of the result is rank r's `values`.
at::Tensor GatherRows(comm::Communicator& world, const at::Tensor& values) {
  const at::Tensor rows =
      at::empty({world.size() * values.numel()}, values.options().device(world.device()));
  world.AllGather(rows, values.to(world.device()));
  return rows.cpu().view({world.size(), values.numel()});
}

}  // namespace

std::span<const std::string_view> Lamb::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

DirectionCoefficients Lamb::Coefficients(const Update& update, const Part& part) const {
  return MakeDirectionCoefficients(config(), update,
                                   {.weight_decay = WeightDecay(part),
                                    .beta1 = Beta1(update, part),
                                    .eps_inside = config().eps_inside_sqrt});
}

double LambRatio(const config::OptimizerConfig& config, const DirectionSquares& squares) {
  if (squares.parameter == 0.0 || squares.direction == 0.0) return 1.0;
  const double ratio = std::sqrt(squares.parameter) / std::sqrt(squares.direction);
  return std::clamp(ratio, config.min_coeff, config.max_coeff);
}

void Lamb::Begin(const Update& update, const RankParts& all) {
  at::Tensor squares = at::zeros({2 * all.parameter_count}, at::kDouble);
  double* const sums = squares.mutable_data_ptr<double>();
  for (const Part& part : all.parts) {
    const DirectionCoefficients c = Coefficients(update, part);
    UpdateMoments(c, part, Launch(part));
    for (const Segment& segment : part.owned) {
      const DirectionSquares mine =
          SumSquares(c, Cut(part, segment.start, segment.count), Launch(part));
      sums[2 * segment.parameter] += mine.parameter;
      sums[2 * segment.parameter + 1] += mine.direction;
    }
  }
  squares = GatherRows(*all.world, squares).sum(0);
  ratios_.clear();
  for (std::int64_t i = 0; i < all.parameter_count; ++i) {
    const double* const of_parameter = squares.const_data_ptr<double>() + 2 * i;
    ratios_.push_back(LambRatio(config(), {of_parameter[0], of_parameter[1]}));
  }
}

void Lamb::Apply(const Update& update, const Part& part) {
  const DirectionCoefficients c = Coefficients(update, part);
  const auto t = static_cast<double>(update.step);
  const double correction1 = 1.0 - std::pow(Beta1(update, part), t);
  const double correction2 = 1.0 - std::pow(config().beta2, t);
  double lr = Rate(update, part);
  if (config().bias_correction) lr *= std::sqrt(correction2) / correction1;
  for (const Segment& segment : part.segments) {
    const double ratio = ratios_.at(static_cast<std::size_t>(segment.parameter));
    StepAlongDirection(c, Cut(part, segment.start, segment.count), -lr * ratio, Launch(part));
  }
}

}  // namespace ds::optim
