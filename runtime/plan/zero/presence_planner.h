#pragma once

// PresencePlanner: which units are present, and whose shards are on the device ahead of being
// gathered, from place to place of a plan (residency_plan.h says by which rules). Pure.

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {

// Lookahead: the units that the visits behind a place will need, as many in their order as a budget
// of bytes takes. It moves from place to place; all moves together take time in proportion to the
// visits, however far the budget reaches. Pure.

class Lookahead {
 public:
  // `needs`: by place, the units that it needs; `stretch`: by place, a number that never falls.
  // From a place only places of its own stretch are looked at. `bytes`: by unit. All outlive this.
  Lookahead(const std::vector<std::vector<int>>& needs, const std::vector<int>& stretch,
            std::vector<std::int64_t> bytes);

  // Goes on to a later place. What that needs itself is not counted. Appends the units for which
  // Contains or the needs may have changed, those that come first.
  void MoveTo(std::size_t place, std::int64_t budget, std::vector<int>* changed);

  // From here on the unit takes nothing of the budget.
  void SetFree(int unit);

  // Tells whether the unit, which the place does not need itself, is needed soon enough.
  bool Contains(int unit) const { return IsCounted(static_cast<std::size_t>(unit)); }
  std::int64_t bytes() const { return sum_; }  // of all these

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
  std::vector<Visit> visits_;  // of all places
  std::size_t begin_ = 0;      // of the visits that are looked at
  std::size_t end_ = 0;
  std::vector<int> visits_of_;   // by unit: how many of those
  std::vector<bool> is_needed_;  // by unit: at the place itself
  std::vector<int> needed_;      // the same as a list
  std::int64_t sum_ = 0;
};

class PresencePlanner {
 public:
  using Changes = std::vector<UnitChange>;

  // `input` outlives this.
  explicit PresencePlanner(const ResidencyPlan::Input& input);

  // Goes on to the next place of the plan; appends what changes there.
  void GoTo(std::size_t place, Changes* presence, Changes* fetched);

 private:
  // By unit.
  struct State {
    bool present = false;
    bool fetched = false;
    bool kept = false;                   // present for the sake of its next use
    bool ahead = false;                  // is gathered before it is needed
    bool persistent = false;             // stays once it is present
    std::size_t next_use = 0;            // in `uses`, of those that the plan has not come past
    std::vector<std::size_t> uses = {};  // places, those to be expected behind the plan too
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
  const std::vector<int> stretch_;             // by place: how many rests there are before it
  std::vector<std::int64_t> bytes_before_{0};  // by place: of the needs of all places before it
  std::vector<State> states_;
  std::vector<int> arrived_;  // what the plan begins with, until its first visit
  Lookahead gathered_;
  Lookahead fetched_;
  std::set<std::pair<std::size_t, int>> kept_;  // (next use, unit)
  std::int64_t kept_bytes_ = 0;
  std::int64_t persistent_bytes_ = 0;  // of persistent units that are present
  std::int64_t ahead_bytes_ = 0;       // of the shards of what is gathered ahead
};

}  // namespace ds::zero
