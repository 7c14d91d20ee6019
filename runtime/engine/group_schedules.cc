#include "runtime/engine/build_engine.h"

#include <algorithm>
#include <string>
#include <variant>

namespace ds::engine {
namespace {

struct FirstOfGroup {
  optim::ParameterGroup group;
  std::string parameter;
};

template <typename Visit>
void ForEachTrained(std::vector<zero::ParameterUnit>& units, Visit visit) {
  for (zero::ParameterUnit& unit : units) {
    for (zero::NamedParameter& parameter : unit.parameters) {
      if (parameter.tensor.requires_grad()) visit(parameter);
    }
  }
}

auto Find(const std::vector<FirstOfGroup>& groups, const optim::ParameterGroup& group) {
  return std::find_if(groups.begin(), groups.end(),
                      [&](const FirstOfGroup& first) { return first.group == group; });
}

std::vector<FirstOfGroup> GroupsOf(std::vector<zero::ParameterUnit>& units) {
  std::vector<FirstOfGroup> groups;
  ForEachTrained(units, [&](const zero::NamedParameter& parameter) {
    if (Find(groups, parameter.group) != groups.end()) return;
    groups.push_back({parameter.group, parameter.name});
  });
  std::stable_partition(groups.begin(), groups.end(),
                        [](const FirstOfGroup& first) { return first.group.muon; });
  return groups;
}

Status CheckCount(std::size_t numbers, const std::vector<FirstOfGroup>& groups) {
  if (numbers == groups.size()) return OkStatus();
  std::string text = "scheduler.params has lists of " + std::to_string(numbers) +
                     " numbers, one for each parameter group, and the model has " +
                     std::to_string(groups.size()) + ":";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += (i == 0 ? " that of " : ", ") + groups[i].parameter;
  }
  return InvalidArgumentError(text);
}

// Returns the rate of the group's half of Muon, or the single rate of other optimizers.
double RateOf(const config::OptimizerConfig& optimizer, const optim::ParameterGroup& group) {
  const auto* const muon = std::get_if<config::MuonConfig>(&optimizer.algorithm);
  return muon == nullptr || group.muon ? optimizer.lr : muon->adam_lr;
}

// Lets Muon's halves follow the same schedule, each from its own rate.
std::vector<double> FollowByHalves(const config::DsConfig& config,
                                   std::vector<zero::ParameterUnit>* units) {
  const auto* const muon = std::get_if<config::MuonConfig>(&config.optimizer.algorithm);
  if (muon == nullptr) return {};
  ForEachTrained(*units, [](zero::NamedParameter& parameter) {
    parameter.group.schedule = parameter.group.muon ? std::size_t{0} : std::size_t{1};
  });
  return {config.optimizer.lr, muon->adam_lr};
}

}  // namespace

StatusOr<std::vector<double>> FollowGroupSchedules(const config::DsConfig& config,
                                                   std::vector<zero::ParameterUnit>* units) {
  if (config.group_schedules.empty()) return FollowByHalves(config, units);
  std::vector<double> rates;
  const std::vector<FirstOfGroup> groups = GroupsOf(*units);
  DS_RETURN_IF_ERROR(CheckCount(config.group_schedules.size(), groups));
  for (const FirstOfGroup& first : groups) {
    rates.push_back(RateOf(config.optimizer, first.group) * first.group.lr_factor);
  }
  ForEachTrained(*units, [&](zero::NamedParameter& parameter) {
    const auto number = Find(groups, parameter.group) - groups.begin();
    parameter.group.schedule = static_cast<std::size_t>(number);
    parameter.group.lr_factor = 1.0;
  });
  return rates;
}

}  // namespace ds::engine
