// 1-bit LAMB (arXiv 2104.06069), as DeepSpeed 0.19.6 computes it after its initialisation step.
//
// Warm-up, updates 1 to freeze_step - 1 (at least one): LAMB without bias correction on the mean
// gradient over the ranks (lamb.cc), and per parameter a running mean of its trust ratio
//   r = coeff_beta r + (1 - coeff_beta) ratio          (not where the ratio is 1)
// From then on v is frozen, gradients are not exchanged, and per parameter
//   m = m + (1 - beta1) (g - m)                                with each rank's own gradient g
//   m = compressed mean over the ranks of m
//   h = (m - beta1 m_before) / (1 - beta1)                     the gradient that m implies
//   w = beta2 w + (1 - beta2) h^2                              the fresh variance; starts as v
//   f = max over elements of (sqrt(v) + eps) / (sqrt(w) + eps)
//   f = s f + (1 - s), then clamped twice: to [factor_min, factor_max], and to the previous f times
//       [1 - factor_threshold, 1 + factor_threshold]
//   p -= lr r f (m / (sqrt(v) + eps) + weight_decay p)
// where s = |m / (sqrt(v) + eps)| / |m / (sqrt(v) + eps) + weight_decay p|, at most 1.
//
// The compression sends the m of all parameters as one buffer with one scale. Each m is therefore
// multiplied by a constant, which gives all parameters the same root mean square at the freeze. The
// padding of the buffer takes part, as in DeepSpeed: a call begins with the values that the
// previous call left there. A parameter with zero m at the freeze (DeepSpeed fails there) is
// excluded: its m remains zero.
//
// Unsharded slices only. The compression errors are not in checkpoints, as in DeepSpeed.

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/comm/compressed_all_reduce.h"
#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/one_bit/frozen_variance.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {
namespace {

constexpr std::size_t kFresh = 2;  // index of the state w, which is updated while v is frozen

double Norm(const at::Tensor& values) { return at::linalg_vector_norm(values).item<double>(); }

// Returns s. `plain` is the direction without weight decay.
double ShareOf(const at::Tensor& plain, const at::Tensor& direction) {
  const double length = Norm(direction);
  return length > 0.0 ? std::min(1.0, Norm(plain) / length) : 1.0;
}

class OneBitLamb : public Optimizer {
 public:
  OneBitLamb(const config::OneBitLambConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "OneBitLamb"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool NeedsLocalGradients(std::int64_t step) const override;
  void Begin(const Update& update, const RankSlices& all) override;
  void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) override;
  nlohmann::json State() const override;
  Status LoadState(const nlohmann::json& state, std::int64_t parameter_count) override;
  void StateWasLoaded() override;

 private:
  // The trust ratio's state of one parameter.
  struct Trust {
    double ratio = 0.0;    // r
    double factor = 1.0;   // the previous update's f
    double scaling = 0.0;  // factor of m in the compression; 0: excluded, or before the freeze
  };

  Trust& TrustOf(const Segment& segment) {
    return trust_.at(static_cast<std::size_t>(segment.parameter));
  }
  DirectionCoefficients MakeCoefficients(const SliceRates& rates) const;
  void WarmUp(const SliceRates& rates, const OptimizerSlice& slice);
  void FindScalings(const RankSlices& all);
  at::Tensor WithPadding(std::vector<at::Tensor> momenta);
  void AverageMomenta(const RankSlices& all);
  void StepFrozen(const SliceRates& rates, const OptimizerSlice& slice);
  // Returns f of one parameter and stores it in `trust`. `share` is s.
  double UpdateFactor(const OptimizerSlice& segment_slice, double share, Trust* trust) const;

  config::OneBitLambConfig config_;
  std::vector<Trust> trust_;                // by parameter
  std::vector<at::Tensor> momenta_before_;  // m_before by parameter, during a frozen update
  device::LedgerEntry momenta_entry_;
  std::optional<comm::CompressedAllReduce> compressed_;  // from the first frozen update on
  at::Tensor padding_;                                   // of the buffer of all momenta
};

std::span<const std::string_view> OneBitLamb::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"};
  return kNames;
}

bool OneBitLamb::NeedsLocalGradients(std::int64_t step) const {
  return step > LastWarmUpUpdate(config_.freeze_step);
}

DirectionCoefficients OneBitLamb::MakeCoefficients(const SliceRates& rates) const {
  return MakeDirectionCoefficients(rates, {.beta2 = config_.beta2, .eps = config_.eps});
}

void OneBitLamb::Begin(const Update& update, const RankSlices& all) {
  trust_.resize(static_cast<std::size_t>(all.parameter_count));
  if (!NeedsLocalGradients(update.step)) return;
  FindScalings(all);
  momenta_before_.assign(trust_.size(), at::Tensor());
  std::int64_t bytes = 0;
  for (const OptimizerSlice& slice : all.slices) {
    const at::Tensor before = slice.state[0].clone();
    bytes += static_cast<std::int64_t>(before.nbytes());
    for (const Segment& segment : slice.segments) {
      momenta_before_[static_cast<std::size_t>(segment.parameter)] =
          before.narrow(0, segment.start, segment.count);
    }
    UpdateMomentum(slice, update.gradient_scale, MakeRates(update, slice).beta1);
  }
  momenta_entry_ = Book(all, device::MemoryUse::kCommBuffers, bytes);
  AverageMomenta(all);
}

// Sets the scalings in the first frozen update; they then stay the same. `size` is the root mean
// square of a parameter's m. The scaled m have the mean of these sizes.
void OneBitLamb::FindScalings(const RankSlices& all) {
  if (std::any_of(trust_.begin(), trust_.end(), [](const Trust& t) { return t.scaling != 0.0; })) {
    return;
  }
  double sum = 0.0;
  std::int64_t count = 0;
  for (const OptimizerSlice& slice : all.slices) {
    for (const Segment& segment : slice.segments) {
      const double size = Norm(slice.state[0].narrow(0, segment.start, segment.count)) /
                          std::sqrt(static_cast<double>(segment.count));
      if (!(size > 0.0)) continue;
      TrustOf(segment).scaling = size;
      sum += size;
      ++count;
    }
  }
  for (Trust& trust : trust_) {
    if (trust.scaling != 0.0) trust.scaling = sum / static_cast<double>(count) / trust.scaling;
  }
}

// Returns the momenta and the padding as one buffer.
at::Tensor OneBitLamb::WithPadding(std::vector<at::Tensor> momenta) {
  if (!padding_.defined()) {
    std::int64_t numel = 0;
    for (const at::Tensor& momentum : momenta) numel += momentum.numel();
    padding_ = at::zeros({compressed_->PaddedNumel(numel) - numel}, momenta[0].options());
  }
  momenta.push_back(padding_);
  return at::cat(momenta);
}

void OneBitLamb::StateWasLoaded() {
  compressed_.reset();
  padding_ = at::Tensor();
}

void OneBitLamb::AverageMomenta(const RankSlices& all) {
  std::vector<at::Tensor> momenta;
  std::vector<double> scalings;
  for (const OptimizerSlice& slice : all.slices) {
    for (const Segment& segment : slice.segments) {
      const at::Tensor momentum = slice.state[0].narrow(0, segment.start, segment.count);
      const double scaling = TrustOf(segment).scaling;
      momentum.mul_(scaling);  // an excluded one becomes zero
      if (scaling == 0.0) continue;
      momenta.push_back(momentum);
      scalings.push_back(scaling);
    }
  }
  if (momenta.empty()) return;
  if (!compressed_) compressed_.emplace(*all.groups.gradients, all.ledger);
  const at::Tensor flat = WithPadding(momenta);
  const device::LedgerEntry entry =
      Book(all, device::MemoryUse::kCommBuffers, static_cast<std::int64_t>(flat.nbytes()));
  compressed_->Average({flat});
  std::int64_t start = 0;
  for (std::size_t i = 0; i < momenta.size(); ++i) {
    momenta[i].copy_(flat.narrow(0, start, momenta[i].numel())).div_(scalings[i]);
    start += momenta[i].numel();
  }
  padding_.copy_(flat.narrow(0, start, padding_.numel()));
  for (const OptimizerSlice& slice : all.slices) ZeroWithoutVariance(slice.state[0], slice);
}

void OneBitLamb::ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) {
  if (NeedsLocalGradients(rates.step)) {
    StepFrozen(rates, slice);
  } else {
    WarmUp(rates, slice);
  }
}

void OneBitLamb::WarmUp(const SliceRates& rates, const OptimizerSlice& slice) {
  const DirectionCoefficients c = MakeCoefficients(rates);
  UpdateMoments(c, slice);
  if (rates.step == LastWarmUpUpdate(config_.freeze_step)) {
    slice.state[kFresh].copy_(slice.state[1]);
  }
  for (const Segment& segment : slice.segments) {
    const OptimizerSlice segment_slice = Cut(slice, segment.start, segment.count);
    const double ratio =
        ComputeTrustRatio(SumSquares(c, segment_slice), config_.min_coeff, config_.max_coeff);
    double& mean = TrustOf(segment).ratio;
    if (ratio != 1.0) mean = config_.coeff_beta * mean + (1.0 - config_.coeff_beta) * ratio;
    StepAlongDirection(c, segment_slice, -rates.lr * ratio);
  }
}

double OneBitLamb::UpdateFactor(const OptimizerSlice& segment_slice, double share,
                                Trust* trust) const {
  const at::Tensor frozen = at::sqrt(segment_slice.state[1]).add_(config_.eps);
  const at::Tensor fresh = at::sqrt(segment_slice.state[kFresh]).add_(config_.eps);
  double factor = frozen.div_(fresh).max().item<double>() * share + (1.0 - share);
  factor = std::clamp(factor, config_.factor_min, config_.factor_max);
  factor = std::clamp(factor, trust->factor * (1.0 - config_.factor_threshold),
                      trust->factor * (1.0 + config_.factor_threshold));
  trust->factor = factor;
  return factor;
}

void OneBitLamb::StepFrozen(const SliceRates& rates, const OptimizerSlice& slice) {
  const double beta1 = rates.beta1;
  for (const Segment& segment : slice.segments) {
    if (segment.count == 0) continue;
    const OptimizerSlice segment_slice = Cut(slice, segment.start, segment.count);
    const at::Tensor& before = momenta_before_.at(static_cast<std::size_t>(segment.parameter));
    const at::Tensor said = segment_slice.state[0].sub(before, beta1).div_(1.0 - beta1);
    segment_slice.state[kFresh].mul_(config_.beta2).addcmul_(said, said, 1.0 - config_.beta2);
    const at::Tensor plain =
        segment_slice.state[0].div(at::sqrt(segment_slice.state[1]).add_(config_.eps));
    const at::Tensor direction = plain.add(segment_slice.parameter, rates.weight_decay);
    const double share = rates.weight_decay > 0.0 ? ShareOf(plain, direction) : 1.0;
    Trust& trust = TrustOf(segment);
    const double factor = UpdateFactor(segment_slice, share, &trust);
    segment_slice.parameter.sub_(direction, rates.lr * trust.ratio * factor);
    momenta_before_[static_cast<std::size_t>(segment.parameter)] = at::Tensor();
  }
  Publish(slice);
}

nlohmann::json OneBitLamb::State() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Trust& trust : trust_) rows.push_back({trust.ratio, trust.factor, trust.scaling});
  return {{"trust", rows}};
}

Status OneBitLamb::LoadState(const nlohmann::json& state, std::int64_t parameter_count) {
  std::vector<std::vector<double>> rows;
  try {
    state.at("trust").get_to(rows);
  } catch (const nlohmann::json::exception&) {
    return DataLossError("the state of OneBitLamb has no rows \"trust\"");
  }
  const bool fits = std::ssize(rows) == parameter_count || rows.empty();
  if (!fits || !std::all_of(rows.begin(), rows.end(), [](auto& r) { return r.size() == 3; })) {
    return DataLossError("the state of OneBitLamb is not one of " +
                         std::to_string(parameter_count) + " parameters");
  }
  trust_.clear();
  for (const auto& row : rows) {
    trust_.push_back({.ratio = row[0], .factor = row[1], .scaling = row[2]});
  }
  return OkStatus();
}

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const config::OneBitLambConfig& config,
                                         double weight_decay) {
  return std::make_unique<OneBitLamb>(config, weight_decay);
}

}  // namespace ds::optim
