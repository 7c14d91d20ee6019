#include "runtime/engine/rates.h"

#include <cmath>
#include <string>
#include <variant>

#include "runtime/base/check.h"

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
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    values.push_back(optim::ValuesAfter(groups_[i].schedule, groups_[i].lr, applied));
    if (!set_.empty()) values.back().lr = set_[i];
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

Status Rates::Set(double lr) { return SetEach({lr}); }

Status Rates::SetEach(const std::vector<double>& rates) {
  DS_CHECK(!rates.empty() && groups_.size() % rates.size() == 0);
  for (const double lr : rates) {
    if (lr >= 0.0 && std::isfinite(lr)) continue;
    return InvalidArgumentError("a learning rate is a number of at least 0");
  }
  const std::size_t parts = groups_.size() / rates.size();  // 2: halves of Muon
  set_.clear();
  for (std::size_t i = 0; i < groups_.size(); ++i) set_.push_back(rates[i / parts]);
  return OkStatus();
}

std::vector<double> Rates::FindEach(std::int64_t applied, std::size_t count) const {
  DS_CHECK(count > 0 && groups_.size() % count == 0);
  const std::vector<optim::ScheduledValues> values = FindNext(applied);
  std::vector<double> rates;
  for (std::size_t i = 0; i < values.size(); i += values.size() / count) {
    rates.push_back(values[i].lr);
  }
  return rates;
}

void Rates::OnUpdate() {
  if (scheduled_) set_.clear();
}

void Rates::AddTo(nlohmann::json* state) const {
  if (set_.empty()) return;
  (*state)["set_lr"] = set_[0];
  if (set_.size() > 1) (*state)["set_group_rates"] = set_;
}

Status Rates::LoadState(const nlohmann::json& state) {
  set_.clear();
  const auto lr = state.find("set_lr");
  if (lr == state.end()) return OkStatus();
  if (!lr->is_number()) return DataLossError("the engine's \"set_lr\" is no number");
  const auto each = state.find("set_group_rates");
  if (each == state.end() || each->size() != groups_.size()) return Set(lr->get<double>());
  for (const nlohmann::json& rate : *each) {
    if (!rate.is_number()) return DataLossError("the engine's \"set_group_rates\" has no numbers");
  }
  return SetEach(each->get<std::vector<double>>());
}

}  // namespace ds::engine
