#include "runtime/optim/one_bit/zero_one_adam.h"

#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/optim/one_bit/frozen_variance.h"

namespace ds::optim {

ZeroOneUpdate ZeroOneIntervals::Position::kind() const {
  if (frozen) return step % local_interval == 0 ? ZeroOneUpdate::kExchange : ZeroOneUpdate::kLocal;
  return step % variance_interval == 0 ? ZeroOneUpdate::kRefresh : ZeroOneUpdate::kOneBit;
}

void ZeroOneIntervals::Position::Advance(const config::ZeroOneAdamConfig& config) {
  if (kind() == ZeroOneUpdate::kRefresh && ++refreshes == config.var_update_scaler) {
    refreshes = 0;
    variance_interval *= 2;
  }
  if (frozen && ++local_steps == config.local_step_scaler) {
    local_steps = 0;
    const bool doubles = local_interval <= config.local_step_clipper / 2;
    local_interval = doubles ? 2 * local_interval : config.local_step_clipper;
  }
  frozen = frozen || step > config.var_freeze_step;
  ++step;
}

ZeroOneUpdate ZeroOneIntervals::At(std::int64_t update) const {
  const std::int64_t step = update + 1;
  if (step < position_.step) position_ = {};
  while (position_.step < step) position_.Advance(config_);
  return position_.kind();
}

std::span<const std::string_view> ZeroOneAdam::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

bool ZeroOneAdam::NeedsLocalGradients(std::int64_t step) const {
  return intervals_.At(step) != ZeroOneUpdate::kRefresh;
}

void ZeroOneAdam::StateWasLoaded() {
  average_.ForgetErrors();
  moved_.clear();
  moved_entry_.Reset();
  rates_.clear();
  has_local_moves_ = false;
}

DirectionCoefficients ZeroOneAdam::MakeCoefficients(const SliceRates& rates) const {
  return MakeDirectionCoefficients(rates, {.beta2 = config_.beta2, .eps = config_.eps});
}

void ZeroOneAdam::Begin(const Update& update, const RankSlices& all) {
  const ZeroOneUpdate kind = intervals_.At(update.step);
  if (kind == ZeroOneUpdate::kRefresh) return;
  if (kind == ZeroOneUpdate::kOneBit) return FollowCompressedGradients(update, all);
  const bool exchange = kind == ZeroOneUpdate::kExchange;
  StepLocally(update, all, exchange);
  if (exchange) Exchange(all);
  has_local_moves_ = !exchange && all.groups.gradients->size() > 1;
}

void ZeroOneAdam::FollowCompressedGradients(const Update& update, const RankSlices& all) {
  std::vector<OptimizerSlice> slices = all.slices;
  std::vector<at::Tensor> gradients;
  std::int64_t bytes = 0;
  for (OptimizerSlice& slice : slices) {
    slice.gradient = slice.gradient.to(at::kFloat).mul(update.gradient_scale);
    bytes += static_cast<std::int64_t>(slice.gradient.nbytes());
    gradients.push_back(slice.gradient);
  }
  const device::LedgerEntry entry = Book(all, device::MemoryUse::kCommBuffers, bytes);
  average_.Take(all, gradients);
  for (const OptimizerSlice& slice : slices) {
    ZeroWithoutVariance(slice.gradient, slice);
    UpdateMomentum(slice, /*gradient_scale=*/1.0, MakeRates(update, slice).beta1);
  }
}

void ZeroOneAdam::StepLocally(const Update& update, const RankSlices& all, bool exchange) {
  if (moved_.empty()) {
    // The previous errors belong to other compressed values.
    average_.ForgetErrors();
    std::int64_t bytes = 0;
    for (const OptimizerSlice& slice : all.slices) {
      moved_.push_back(at::zeros_like(slice.parameter));
      bytes += static_cast<std::int64_t>(moved_.back().nbytes());
    }
    moved_entry_ = Book(all, device::MemoryUse::kOptimizerState, bytes);
    rates_.assign(moved_.size(), 0.0);
  }
  for (std::size_t i = 0; i < all.slices.size(); ++i) {
    const OptimizerSlice& slice = all.slices[i];
    const SliceRates rates = MakeRates(update, slice);
    UpdateMomentum(slice, rates.gradient_scale, rates.beta1);
    ZeroWithoutVariance(slice.state[0], slice);
    const at::Tensor direction = ComputeDirection(MakeCoefficients(rates), slice);
    if (exchange) {
      slice.parameter.sub_(moved_[i]);
    } else {
      slice.parameter.sub_(direction, rates.lr);
    }
    moved_[i].sub_(direction, rates.lr);
    rates_[i] += rates.lr;
  }
}

void ZeroOneAdam::Exchange(const RankSlices& all) {
  for (std::size_t i = 0; i < all.slices.size(); ++i) {
    moved_[i].mul_(at::sqrt(all.slices[i].state[1]).add_(config_.eps));
  }
  average_.Take(all, moved_);
  for (std::size_t i = 0; i < all.slices.size(); ++i) {
    const OptimizerSlice& slice = all.slices[i];
    ZeroWithoutVariance(moved_[i], slice);
    if (rates_[i] > 0.0) slice.state[0].copy_(moved_[i]).div_(-rates_[i]);
    slice.parameter.add_(moved_[i].div_(at::sqrt(slice.state[1]).add_(config_.eps)));
    moved_[i].zero_();
    rates_[i] = 0.0;
  }
}

void ZeroOneAdam::ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) {
  const ZeroOneUpdate kind = intervals_.At(rates.step);
  if (kind == ZeroOneUpdate::kLocal || kind == ZeroOneUpdate::kExchange) return Publish(slice);
  const DirectionCoefficients c = MakeCoefficients(rates);
  if (kind == ZeroOneUpdate::kRefresh) UpdateMoments(c, slice);
  StepAlongDirection(c, slice, -rates.lr);
}

std::unique_ptr<Optimizer> MakeOptimizer(const config::ZeroOneAdamConfig& config,
                                         double weight_decay) {
  return std::make_unique<ZeroOneAdam>(config, weight_decay);
}

}  // namespace ds::optim
