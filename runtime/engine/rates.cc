#include "runtime/engine/rates.h"

#include <cmath>
#include <string>
#include <variant>

namespace ds::engine {
namespace {

// Returns the momentum without a schedule that cycles it.
double FindConfiguredMomentum(const config::OptimizerConfig& optimizer) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.beta1; }) return each.beta1;
        if constexpr (requires { each.momentum; }) return each.momentum;
        return 0.0;
      },
      optimizer.algorithm);
}

}  // namespace

Rates::Rates(const config::DsConfig& config, std::vector<double> group_rates)
    : configured_momentum_(FindConfiguredMomentum(config.optimizer)),
      scheduled_(!std::holds_alternative<config::ConstantRate>(config.scheduler)),
      last_update_(optim::LastUpdateOf(config)) {
  const auto& schedules = config.group_schedules;
  for (std::size_t i = 0; i < group_rates.size(); ++i) {
    groups_.push_back({schedules.empty() ? config.scheduler : schedules.at(i), group_rates[i]});
  }
  if (groups_.empty()) groups_.push_back({config.scheduler, config.optimizer.lr});
}

std::vector<optim::ScheduledValues> Rates::FindNext(std::int64_t applied) const {
  std::vector<optim::ScheduledValues> values;
  for (const Group& group : groups_) {
    values.push_back(optim::ValuesAfter(group.schedule, group.lr, applied));
    if (set_lr_) values.back().lr = *set_lr_;
    values.back().lr *= factor_;
  }
  return values;
}

double Rates::FindMomentum(std::int64_t applied) const {
  return FindNext(applied)[0].momentum.value_or(configured_momentum_);
}

Status Rates::CheckCanResume(std::int64_t applied) const {
  if (last_update_ && applied >= *last_update_) {
    return FailedPreconditionError("the schedule ends after " + std::to_string(*last_update_) +
                                   " updates: give scheduler.params for a longer run");
  }
  for (const optim::ScheduledValues& values : FindNext(applied)) {
    if (std::isfinite(values.lr)) continue;
    return FailedPreconditionError(
        "the schedule's learning rate after " + std::to_string(applied) + " updates is " +
        (std::isnan(values.lr) ? "not a number" : "infinite") + ": change scheduler.params");
  }
  return OkStatus();
}

Status Rates::Set(double lr) {
  if (!(lr >= 0.0 && std::isfinite(lr))) {
    return InvalidArgumentError("a learning rate is a number of at least 0");
  }
  set_lr_ = lr;
  return OkStatus();
}

void Rates::OnUpdate() {
  if (scheduled_) set_lr_.reset();
}

void Rates::AddTo(nlohmann::json* state) const {
  if (set_lr_) (*state)["set_lr"] = *set_lr_;
}

Status Rates::LoadState(const nlohmann::json& state) {
  set_lr_.reset();
  const auto lr = state.find("set_lr");
  if (lr == state.end()) return OkStatus();
  if (!lr->is_number()) return DataLossError("the engine's \"set_lr\" is no number");
  return Set(lr->get<double>());
}

}  // namespace ds::engine
