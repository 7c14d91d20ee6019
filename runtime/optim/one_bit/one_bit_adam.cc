// 1-bit Adam (arXiv 2102.02888), as DeepSpeed 0.19.6 computes it after its initialisation step.
//
// Warm-up, updates 1 to freeze_step - 1 (at least one), with the mean gradient g over the ranks:
//   m = m + (1 - beta1) (g - m)              v = beta2 v + (1 - beta2) g^2
//   p -= lr (m / (sqrt(v) + eps) + weight_decay p)               without bias correction
// From then on v is frozen and gradients are not exchanged. Each rank updates m with its own
// gradient, m becomes the compressed mean over the ranks (one_bit_average.h), and p is updated as
// above. Compression cannot represent zero: where v is zero, because there was no gradient, m is
// kept at zero (DeepSpeed's users request it with an exp_avg_mask).
//
// Unsharded slices only. The compression errors are not in checkpoints, as in DeepSpeed.

#include <memory>
#include <string_view>

#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/one_bit/frozen_variance.h"
#include "runtime/optim/one_bit/one_bit_average.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {
namespace {

class OneBitAdam : public Optimizer {
 public:
  OneBitAdam(const config::OneBitAdamConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "OneBitAdam"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool NeedsLocalGradients(std::int64_t step) const override;
  void Begin(const Update& update, const RankSlices& all) override;
  void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) override;
  void StateWasLoaded() override { average_.ForgetErrors(); }

 private:
  config::OneBitAdamConfig config_;
  OneBitAverage average_;
};

std::span<const std::string_view> OneBitAdam::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

bool OneBitAdam::NeedsLocalGradients(std::int64_t step) const {
  return step > LastWarmUpUpdate(config_.freeze_step);
}

void OneBitAdam::Begin(const Update& update, const RankSlices& all) {
  if (!NeedsLocalGradients(update.step)) return;
  std::vector<at::Tensor> momenta;
  for (const OptimizerSlice& slice : all.slices) {
    UpdateMomentum(slice, update.gradient_scale, MakeRates(update, slice).beta1);
    momenta.push_back(slice.state[0]);
  }
  average_.Take(all, momenta);
  for (const OptimizerSlice& slice : all.slices) ZeroWithoutVariance(slice.state[0], slice);
}

void OneBitAdam::ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) {
  const DirectionCoefficients c =
      MakeDirectionCoefficients(rates, {.beta2 = config_.beta2, .eps = config_.eps});
  if (!NeedsLocalGradients(rates.step)) UpdateMoments(c, slice);
  StepAlongDirection(c, slice, -rates.lr);
}

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const config::OneBitAdamConfig& config,
                                         double weight_decay) {
  return std::make_unique<OneBitAdam>(config, weight_decay);
}

}  // namespace ds::optim
