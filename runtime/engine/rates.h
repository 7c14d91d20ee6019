#pragma once

// Rates: the learning rate and momentum of each update, as the config's schedules or the user give
// them. Pure but for the rate and the factor that the user sets.

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
  // `group_rates` are the own rates of the groups that follow a schedule each
  // (FollowGroupSchedules): that of config.group_schedules, or all the one that there is.
  Rates(const config::DsConfig& config, std::vector<double> group_rates);

  // The values of the update that follows `applied` others: one for each of those
  // groups, else one for all. Never empty.
  std::vector<optim::ScheduledValues> FindNext(std::int64_t applied) const;
  // Its momentum in the first group: Adam's beta1, SGD's and Muon's momentum.
  double FindMomentum(std::int64_t applied) const;
  // Fails when the schedule is not defined for that update, or its rate is not finite.
  Status CheckGoesOn(std::int64_t applied) const;

  // Sets the rate: for one update where a schedule gives the next one, for good where there is
  // none. Groups keep their factors.
  Status Set(double lr);
  // Multiplies the rates that FindNext gives by it, whoever has set them, until the next call.
  // Requires a factor above 0. Not part of checkpoints.
  void Scale(double factor) { factor_ = factor; }
  // Says that an update has used FindNext's values.
  void OnUpdate();

  // For checkpoints, the rate that was set: puts it into the engine's state, takes it from there.
  void AddTo(nlohmann::json* state) const;
  Status LoadState(const nlohmann::json& state);

 private:
  struct Group {
    config::Schedule schedule;
    double lr = 0.0;  // its own
  };
  std::vector<Group> groups_;
  double configured_momentum_ = 0.0;
  bool scheduled_ = false;
  std::optional<std::int64_t> last_update_;
  std::optional<double> set_lr_;
  double factor_ = 1.0;
};

}  // namespace ds::engine
