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

  // Sets the rate: for one update if there is a schedule, permanently otherwise. Groups keep their
  // factors.
  Status Set(double lr);
  // Multiplies the rates that FindNext returns, scheduled or set, by `factor` until the next call.
  // Requires a factor above 0. Not saved in checkpoints.
  void Scale(double factor) { factor_ = factor; }
  // Call after an update that used FindNext's values.
  void OnUpdate();

  // Saves the rate set by Set() to, and loads it from, the engine's state in checkpoints.
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
  std::optional<double> set_lr_;
  double factor_ = 1.0;
};

}  // namespace ds::engine
