#include "runtime/optim/lamb.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace ds::optim {
namespace {

// Row r of the result is rank r's `values`.
at::Tensor GatherRows(comm::Communicator& control, const at::Tensor& values) {
  const at::Tensor rows =
      at::empty({control.size() * values.numel()}, values.options().device(control.device()));
  control.AllGather(rows, values.to(control.device()));
  return rows.cpu().view({control.size(), values.numel()});
}

}  // namespace

std::span<const std::string_view> Lamb::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

DirectionCoefficients Lamb::MakeCoefficients(const PartRates& rates) const {
  return MakeDirectionCoefficients(
      rates, {.beta2 = config_.beta2, .eps = config_.eps, .eps_inside = config_.eps_inside_sqrt});
}

void Lamb::Begin(const Update& update, const RankParts& all) {
  at::Tensor squares = at::zeros({2 * all.parameter_count}, at::kDouble);
  double* const sums = squares.mutable_data_ptr<double>();
  for (const Part& part : all.parts) {
    const DirectionCoefficients c = MakeCoefficients(MakeRates(update, part));
    UpdateMoments(c, part);
    for (const Segment& segment : part.owned) {
      const DirectionSquares mine = SumSquares(c, Cut(part, segment.start, segment.count));
      sums[2 * segment.parameter] += mine.parameter;
      sums[2 * segment.parameter + 1] += mine.direction;
    }
  }
  squares = GatherRows(all.groups.shards->control(), squares).sum(0);
  ratios_.clear();
  for (std::int64_t i = 0; i < all.parameter_count; ++i) {
    const double* const of_parameter = squares.const_data_ptr<double>() + 2 * i;
    ratios_.push_back(ComputeTrustRatio({of_parameter[0], of_parameter[1]}, config_.min_coeff,
                                        config_.max_coeff));
  }
}

void Lamb::ApplyRates(const PartRates& rates, const Part& part) {
  const DirectionCoefficients c = MakeCoefficients(rates);
  const auto t = static_cast<double>(rates.step);
  const double correction1 = 1.0 - std::pow(rates.beta1, t);
  const double correction2 = 1.0 - std::pow(config_.beta2, t);
  double lr = rates.lr;
  if (config_.bias_correction) lr *= std::sqrt(correction2) / correction1;
  for (const Segment& segment : part.segments) {
    const double ratio = ratios_.at(static_cast<std::size_t>(segment.parameter));
    StepAlongDirection(c, Cut(part, segment.start, segment.count), -lr * ratio);
  }
}

}  // namespace ds::optim
