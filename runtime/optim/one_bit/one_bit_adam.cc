#include "runtime/optim/one_bit/one_bit_adam.h"

#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/one_bit/frozen_variance.h"

namespace ds::optim {

std::span<const std::string_view> OneBitAdam::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

bool OneBitAdam::WantsOwnGradients(std::int64_t step) const {
  return step > LastWarmUpUpdate(config_.freeze_step);
}

void OneBitAdam::Begin(const Update& update, const RankParts& all) {
  if (!WantsOwnGradients(update.step)) return;
  std::vector<at::Tensor> momenta;
  for (const Part& part : all.parts) {
    UpdateMomentum(part, update.gradient_scale, MakeRates(update, part).beta1);
    momenta.push_back(part.state[0]);
  }
  average_.Take(all, momenta);
  for (const Part& part : all.parts) ZeroWhereVarianceIs(part.state[0], part);
}

void OneBitAdam::ApplyRates(const PartRates& rates, const Part& part) {
  const DirectionCoefficients c =
      MakeDirectionCoefficients(rates, {.beta2 = config_.beta2, .eps = config_.eps});
  if (!WantsOwnGradients(rates.step)) UpdateMoments(c, part);
  StepAlongDirection(c, part, -rates.lr);
}

}  // namespace ds::optim
