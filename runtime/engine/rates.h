#pragma once

// Rates computes the learning rate and momentum of each update from the config's schedules or the
// user's setting. Pure except for the rate and the factor that the user sets.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/schedule/lr_schedule.h"

namespace ds::engine {

class Rates {
 public:
  // `group_rates` are the base rates of the groups with their own schedule (FollowGroupSchedules):
  // the matching one of config.group_schedules, or config.scheduler for all.
  Rates(const config::DsConfig& config, std::vector<double> group_rates);

  // Returns the values for the update after `applied` others: one per group with its own schedule,
  // otherwise a single one. Never empty.
  std::vector<optim::ScheduledValues> FindNext(std::int64_t applied) const;
  // The first group's momentum at that update: Adam's beta1, SGD's and Muon's momentum.
  double FindMomentum(std::int64_t applied) const;
  // Fails if the schedule is not defined for that update, or if its rate is not finite.
  Status CheckCanResume(std::int64_t applied) const;

  // Sets one rate for all groups: for one update if there is a schedule, permanently otherwise.
  // Parameters keep their factors.
  Status Set(double lr);
  // The same with one rate for each of EngineOptions::group_rates.
  Status SetEach(const std::vector<double>& rates);
  // The rates of `count` groups at the update after `applied` others, as SetEach takes them.
  std::vector<double> FindEach(std::int64_t applied, std::size_t count) const;
  // Multiplies the rates that FindNext returns, scheduled or set, by `factor` until the next call.
  // Requires a factor above 0. Not saved in checkpoints.
  void Scale(double factor) { factor_ = factor; }
  // Call after an update that used FindNext's values.
  void OnUpdate();

  // Saves the rates set to, and loads them from, the engine's state in checkpoints. An engine with
  // another number of groups takes the first one's for all.
  void AddTo(nlohmann::json* state) const;
  Status LoadState(const nlohmann::json& state);

 private:
  struct Group {
    config::Schedule schedule;
    double lr = 0.0;  // the base rate
  };
  std::vector<Group> groups_;
  double configured_momentum_ = 0.0;
  bool scheduled_ = false;
  std::optional<std::int64_t> last_update_;
  std::vector<double> set_;  // by group; empty if none is set
  double factor_ = 1.0;
};

}  // namespace ds::engine
