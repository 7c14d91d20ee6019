// LAMB as DeepSpeed's FusedLamb computes it. With gradient g, step t counted from 1:
//   m = m + (1 - beta1) (g - m)              v = beta2 v + (1 - beta2) g^2
//   u = m / (sqrt(v) + eps) + weight_decay * p          (m / sqrt(v + eps) with eps_inside_sqrt)
//   p -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * ratio * u
// where ratio is |p| / |u| of the full parameter, clamped to [min_coeff, max_coeff], and 1 if
// either norm is 0. Without bias_correction both corrections are 1.

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <memory>
#include <vector>

#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {
namespace {

// Gathers `values` of all ranks; row r of the result is rank r's.
at::Tensor GatherRows(comm::Communicator& control, const at::Tensor& values) {
  const at::Tensor rows =
      at::empty({control.size() * values.numel()}, values.options().device(control.device()));
  control.AllGather(rows, values.to(control.device()), "squares of weights and directions");
  return rows.cpu().view({control.size(), values.numel()});
}

class Lamb : public Optimizer {
 public:
  Lamb(const config::LambConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "Lamb"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  Reach reach(const ParameterGroup&) const override { return config::ReachOf(config_); }
  // Updates the state and computes each parameter's ratio, with one all-gather of two numbers per
  // parameter.
  void Begin(const Update& update, const RankSlices& all) override;
  void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) override;

 private:
  DirectionCoefficients MakeCoefficients(const SliceRates& rates) const;

  config::LambConfig config_;
  std::vector<double> ratios_;  // of this update, by parameter
};

std::span<const std::string_view> Lamb::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

DirectionCoefficients Lamb::MakeCoefficients(const SliceRates& rates) const {
  return MakeDirectionCoefficients(
      rates, {.beta2 = config_.beta2, .eps = config_.eps, .eps_inside = config_.eps_inside_sqrt});
}

void Lamb::Begin(const Update& update, const RankSlices& all) {
  at::Tensor squares = at::zeros({2 * all.parameter_count}, at::kDouble);
  double* const sums = squares.mutable_data_ptr<double>();
  all.for_each([&](const OptimizerSlice& slice) {
    const DirectionCoefficients c = MakeCoefficients(MakeRates(update, slice));
    UpdateMoments(c, slice);
    for (const Segment& segment : slice.owned) {
      const DirectionSquares mine = SumSquares(c, Cut(slice, segment.start, segment.count));
      sums[2 * segment.parameter] += mine.parameter;
      sums[2 * segment.parameter + 1] += mine.direction;
    }
  });
  squares = GatherRows(all.groups.shards->control(), squares).sum(0);
  ratios_.clear();
  for (std::int64_t i = 0; i < all.parameter_count; ++i) {
    const double* const of_parameter = squares.const_data_ptr<double>() + 2 * i;
    ratios_.push_back(ComputeTrustRatio({of_parameter[0], of_parameter[1]}, config_.min_coeff,
                                        config_.max_coeff));
  }
}

void Lamb::ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) {
  const DirectionCoefficients c = MakeCoefficients(rates);
  const auto t = static_cast<double>(rates.step);
  const double correction1 = 1.0 - std::pow(rates.beta1, t);
  const double correction2 = 1.0 - std::pow(config_.beta2, t);
  double lr = rates.lr;
  if (config_.bias_correction) lr *= std::sqrt(correction2) / correction1;
  for (const Segment& segment : slice.segments) {
    const double ratio = ratios_.at(static_cast<std::size_t>(segment.parameter));
    StepAlongDirection(c, Cut(slice, segment.start, segment.count), -lr * ratio);
  }
}

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const config::LambConfig& config, double weight_decay) {
  return std::make_unique<Lamb>(config, weight_decay);
}

}  // namespace ds::optim
