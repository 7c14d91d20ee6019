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

bool ZeroOneAdam::WantsOwnGradients(std::int64_t step) const {
  return intervals_.At(step) != ZeroOneUpdate::kRefresh;
}

void ZeroOneAdam::StateWasLoaded() {
  average_.ForgetErrors();
  moved_.clear();
  moved_entry_.Reset();
  rates_.clear();
  has_local_moves_ = false;
}

DirectionCoefficients ZeroOneAdam::MakeCoefficients(const PartRates& rates) const {
  return MakeDirectionCoefficients(rates, {.beta2 = config_.beta2, .eps = config_.eps});
}

void ZeroOneAdam::Begin(const Update& update, const RankParts& all) {
  const ZeroOneUpdate kind = intervals_.At(update.step);
  if (kind == ZeroOneUpdate::kRefresh) return;
  if (kind == ZeroOneUpdate::kOneBit) return FollowCompressedGradients(update, all);
  const bool exchange = kind == ZeroOneUpdate::kExchange;
  StepLocally(update, all, exchange);
  if (exchange) Exchange(all);
  has_local_moves_ = !exchange && all.groups.gradients->size() > 1;
}

void ZeroOneAdam::FollowCompressedGradients(const Update& update, const RankParts& all) {
  std::vector<Part> parts = all.parts;
  std::vector<at::Tensor> gradients;
  std::int64_t bytes = 0;
  for (Part& part : parts) {
    part.gradient = part.gradient.to(at::kFloat).mul(update.gradient_scale);
    bytes += static_cast<std::int64_t>(part.gradient.nbytes());
    gradients.push_back(part.gradient);
  }
  const device::LedgerEntry entry = Book(all, device::MemoryUse::kCommBuffers, bytes);
  average_.Take(all, gradients);
  for (const Part& part : parts) {
    ZeroWhereVarianceIs(part.gradient, part);
    UpdateMomentum(part, /*gradient_scale=*/1.0, MakeRates(update, part).beta1);
  }
}

void ZeroOneAdam::StepLocally(const Update& update, const RankParts& all, bool exchange) {
  if (moved_.empty()) {
    // The previous errors belong to other compressed values.
    average_.ForgetErrors();
    std::int64_t bytes = 0;
    for (const Part& part : all.parts) {
      moved_.push_back(at::zeros_like(part.parameter));
      bytes += static_cast<std::int64_t>(moved_.back().nbytes());
    }
    moved_entry_ = Book(all, device::MemoryUse::kOptimizerState, bytes);
    rates_.assign(moved_.size(), 0.0);
  }
  for (std::size_t i = 0; i < all.parts.size(); ++i) {
    const Part& part = all.parts[i];
    const PartRates rates = MakeRates(update, part);
    UpdateMomentum(part, rates.gradient_scale, rates.beta1);
    ZeroWhereVarianceIs(part.state[0], part);
    const at::Tensor direction = ComputeDirection(MakeCoefficients(rates), part);
    if (exchange) {
      part.parameter.sub_(moved_[i]);
    } else {
      part.parameter.sub_(direction, rates.lr);
    }
    moved_[i].sub_(direction, rates.lr);
    rates_[i] += rates.lr;
  }
}

void ZeroOneAdam::Exchange(const RankParts& all) {
  for (std::size_t i = 0; i < all.parts.size(); ++i) {
    moved_[i].mul_(at::sqrt(all.parts[i].state[1]).add_(config_.eps));
  }
  average_.Take(all, moved_);
  for (std::size_t i = 0; i < all.parts.size(); ++i) {
    const Part& part = all.parts[i];
    ZeroWhereVarianceIs(moved_[i], part);
    if (rates_[i] > 0.0) part.state[0].copy_(moved_[i]).div_(-rates_[i]);
    part.parameter.add_(moved_[i].div_(at::sqrt(part.state[1]).add_(config_.eps)));
    moved_[i].zero_();
    rates_[i] = 0.0;
  }
}

void ZeroOneAdam::ApplyRates(const PartRates& rates, const Part& part) {
  const ZeroOneUpdate kind = intervals_.At(rates.step);
  if (kind == ZeroOneUpdate::kLocal || kind == ZeroOneUpdate::kExchange) return Publish(part);
  const DirectionCoefficients c = MakeCoefficients(rates);
  if (kind == ZeroOneUpdate::kRefresh) UpdateMoments(c, part);
  StepAlongDirection(c, part, -rates.lr);
}

std::unique_ptr<Optimizer> MakeOptimizer(const config::ZeroOneAdamConfig& config,
                                         double weight_decay) {
  return std::make_unique<ZeroOneAdam>(config, weight_decay);
}

}  // namespace ds::optim
