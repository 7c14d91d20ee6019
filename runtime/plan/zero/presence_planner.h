#pragma once

// PresencePlanner: computes, from place to place of a plan, the present units and the units with
// shards fetched ahead of their gather (rules: residency_plan.h). Pure.

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {

// Lookahead: the units that the coming visits need, in order, as many as fit into a budget of
// bytes. All moves together take time proportional to the number of visits, for any budget. Pure.

class Lookahead {
 public:
  // `needs`: by place, the units it needs. `stretch`: by place, a number that never falls; only
  // places of the current stretch are considered. `bytes`: by unit. `needs` and `stretch` must
  // outlive this object.
  Lookahead(const std::vector<std::vector<int>>& needs, const std::vector<int>& stretch,
            std::vector<std::int64_t> bytes);

  // Moves to a later place. The units which that place needs are not counted. Appends to `changed`
  // the units with a possibly changed Contains or need, in the order of their visits.
  void MoveTo(std::size_t place, std::int64_t budget, std::vector<int>* changed);

  // From now on the unit uses none of the budget.
  void SetFree(int unit);

  // True if the unit is needed soon enough. False for units that the current place needs.
  bool Contains(int unit) const { return IsCounted(static_cast<std::size_t>(unit)); }
  std::int64_t bytes() const { return sum_; }  // of all contained units

 private:
  struct Visit {
    std::size_t place = 0;
    std::size_t unit = 0;
  };

  bool IsCounted(std::size_t unit) const { return visits_of_[unit] > 0 && !is_needed_[unit]; }
  bool Grow(std::size_t place, std::int64_t budget);
  void AddVisit(std::size_t unit, int count);
  void SetNeeded(std::size_t unit, bool needed);

  const std::vector<std::vector<int>>& needs_;
  const std::vector<int>& stretch_;
  std::vector<std::int64_t> bytes_;
  std::vector<Visit> visits_;  // at all places
  std::size_t begin_ = 0;      // of the visits within the budget
  std::size_t end_ = 0;
  std::vector<int> visits_of_;   // by unit: its visits in [begin_, end_)
  std::vector<bool> is_needed_;  // by unit: at the current place
  std::vector<int> needed_;      // is_needed_ as a list
  std::int64_t sum_ = 0;
};

class PresencePlanner {
 public:
  using Changes = std::vector<UnitChange>;

  // `input` must outlive this object.
  explicit PresencePlanner(const ResidencyPlan::Input& input);

  // Moves to the next place of the plan; appends the changes there.
  void GoTo(std::size_t place, Changes* presence, Changes* fetched);

 private:
  // The state of one unit.
  struct State {
    bool present = false;
    bool fetched = false;
    bool kept = false;                   // present for the sake of its next use
    bool ahead = false;                  // gathered before it is needed
    bool persistent = false;             // stays once it is present
    std::size_t next_use = 0;            // in `uses`: the first one that the plan has not passed
    std::vector<std::size_t> uses = {};  // places, including the expected ones after the plan
  };

  State& of(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  std::int64_t BytesOf(const std::vector<int>& units) const;
  void NoteNeeds(std::size_t place, const std::vector<int>& units);
  void ChoosePersistent();
  void SetPresent(int unit, bool present);
  std::int64_t FindRoom(const std::vector<int>& needs) const;
  bool IsUsedSoonBehind(std::size_t place, int unit);
  void SetKept(int unit, bool kept);
  void KeepForReuse(std::size_t place, std::int64_t room, std::vector<int>* changed);
  std::int64_t FetchBudget(const std::vector<int>& changed);
  void Visit(std::size_t place, Changes* presence, Changes* fetched);
  void Rest(Changes* presence, Changes* fetched);

  const ResidencyPlan::Input& input_;
  const std::vector<std::vector<int>> needs_;  // by place
  const std::vector<int> stretch_;             // by place: rests before it
  std::vector<std::int64_t> bytes_before_{0};  // by place: needs of all earlier places
  std::vector<State> states_;
  std::vector<int> arrived_;  // initial units of the plan, until its first visit
  Lookahead gathered_;
  Lookahead fetched_;
  std::set<std::pair<std::size_t, int>> kept_;  // (next use, unit)
  std::int64_t kept_bytes_ = 0;
  std::int64_t persistent_bytes_ = 0;  // of persistent units that are present
  std::int64_t ahead_bytes_ = 0;       // of the shards of units gathered ahead
};

}  // namespace ds::zero
