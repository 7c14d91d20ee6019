#include "runtime/engine/step_context.h"

#include <utility>

namespace ds::engine {

double StepContext::backward_scale(bool scale_wrt_gas) const {
  const std::int64_t gas = scale_wrt_gas ? batch.gradient_accumulation_steps : 1;
  return loss_scaler.scale() / static_cast<double>(gas);
}

double StepContext::loss_unit() const {
  constexpr std::int64_t kLabelsOfASample = 512;  // a guess, for the first step
  const std::int64_t labels = state.counts.most_labels > 0
                                  ? state.counts.most_labels
                                  : kLabelsOfASample * batch.train_micro_batch_size_per_gpu;
  return static_cast<double>(labels);
}

double StepContext::gradient_unit() const {
  return loss_scaler.scale() * state.current.mean_weight.value();
}

optim::Update StepContext::MakeUpdate(double clip,
                                      std::vector<optim::ScheduledValues> scheduled) const {
  const optim::ScheduledValues first = scheduled[0];
  return {.lr = first.lr,
          .gradient_scale = clip / gradient_unit(),
          .step = state.counts.optimizer_updates() + 1,
          .beta1 = first.momentum,
          .groups = std::move(scheduled)};
}

Status StepContext::LoadProgress(const nlohmann::json& saved) {
  DS_RETURN_IF_ERROR(state.counts.LoadState(saved));
  if (const auto scaler = saved.find("loss_scaler");
      loss_scaler.dynamic() && scaler != saved.end()) {
    DS_RETURN_IF_ERROR(loss_scaler.LoadState(*scaler));
  }
  return rates.LoadState(saved);
}

}  // namespace ds::engine
