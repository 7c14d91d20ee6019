#include "runtime/plan/zero/presence_planner.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ds::zero {
namespace {

std::vector<std::vector<int>> ListAllNeeds(const ResidencyPlan::Input& input) {
  std::vector<std::vector<int>> needs;
  for (const Place& place : input.places) needs.push_back(input.ListNeeds(place));
  return needs;
}

std::vector<int> CountRests(const std::vector<Place>& places) {
  std::vector<int> before{0};
  for (const Place& place : places) {
    before.push_back(before.back() + (place.kind == Place::Kind::kRest ? 1 : 0));
  }
  return before;
}

std::vector<std::int64_t> ListBytes(const std::vector<PlannedUnit>& units,
                                    std::int64_t PlannedUnit::*bytes) {
  std::vector<std::int64_t> all;
  for (const PlannedUnit& unit : units) all.push_back(unit.*bytes);
  return all;
}

}  // namespace

PresencePlanner::PresencePlanner(const ResidencyPlan::Input& input)
    : input_(input),
      needs_(ListAllNeeds(input)),
      stretch_(CountRests(input.places)),
      states_(input.units.size()),
      arrived_(input.present),
      gathered_(needs_, stretch_, ListBytes(input.units, &PlannedUnit::bytes)),
      fetched_(needs_, stretch_, ListBytes(input.units, &PlannedUnit::fetched_bytes)) {
  ChoosePersistent();
  for (const int unit : input.present) SetPresent(unit, true);
  for (const int unit : input.fetched) of(unit).fetched = true;
  arrived_.insert(arrived_.end(), input.fetched.begin(), input.fetched.end());
  for (std::size_t place = 0; place < needs_.size(); ++place) NoteNeeds(place, needs_[place]);
  for (std::size_t i = 0; i < input.expected.size(); ++i) {
    NoteNeeds(needs_.size() + i, input.ListNeeds(input.expected[i]));
  }
}

// Follows the model's order, like DeepSpeed's loop over parameters.
void PresencePlanner::ChoosePersistent() {
  const ResidencyBudgets& budgets = input_.budgets;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PlannedUnit& unit = input_.units[i];
    if (input_.keeps_parameters) {
      states_[i].persistent = true;
      continue;
    }
    if (budgets.persistent_parameter_bytes == 0 ||
        unit.largest_bytes > budgets.persistent_parameter_bytes ||
        unit.bytes > budgets.persistent_bytes - sum) {
      continue;
    }
    states_[i].persistent = true;
    sum += unit.bytes;
  }
}

// A persistent unit uses live bytes until it is released, and none of the prefetch budget.
void PresencePlanner::SetPresent(int unit, bool present) {
  State& state = of(unit);
  state.present = present;
  if (!state.persistent || !present) return;
  persistent_bytes_ += BytesOf({unit});
  gathered_.SetFree(unit);
}

std::int64_t PresencePlanner::FindRoom(const std::vector<int>& needs) const {
  std::int64_t live = persistent_bytes_;
  for (const int unit : needs) {
    const State& state = states_[static_cast<std::size_t>(unit)];
    if (!state.persistent || !state.present) live += BytesOf({unit});
  }
  return std::max<std::int64_t>(0, input_.budgets.max_live_bytes - live);
}

void PresencePlanner::NoteNeeds(std::size_t place, const std::vector<int>& units) {
  bytes_before_.push_back(bytes_before_.back() + BytesOf(units));
  for (const int unit : units) of(unit).uses.push_back(place);
}

std::int64_t PresencePlanner::BytesOf(const std::vector<int>& units) const {
  std::int64_t bytes = 0;
  for (const int unit : units) bytes += input_.units[static_cast<std::size_t>(unit)].bytes;
  return bytes;
}

void PresencePlanner::GoTo(std::size_t place, Changes* presence, Changes* fetched) {
  const Place& next = input_.places[place];
  if (next.kind == Place::Kind::kRest) Rest(presence, fetched);
  if (next.is_visit()) Visit(place, presence, fetched);
}

// True if the places between this one and the unit's next use need less than the budget, without a
// rest.
bool PresencePlanner::IsUsedSoonBehind(std::size_t place, int unit) {
  State& state = of(unit);
  while (state.next_use < state.uses.size() && state.uses[state.next_use] < place) {
    ++state.next_use;
  }
  if (state.next_use == state.uses.size()) return false;
  const std::size_t use = state.uses[state.next_use];
  const int stretch = use < needs_.size() ? stretch_[use] : stretch_.back();
  return stretch == stretch_[place] &&
         bytes_before_[use] - bytes_before_[place] < input_.budgets.reuse_bytes;
}

void PresencePlanner::SetKept(int unit, bool kept) {
  State& state = of(unit);
  if (state.kept == kept) return;
  state.kept = kept;
  const std::pair entry(state.uses[state.next_use], unit);
  if (kept) {
    kept_.insert(entry);
  } else {
    kept_.erase(entry);
  }
  kept_bytes_ += (kept ? 1 : -1) * BytesOf({unit});
}

// Keeps units that would be released but are used again soon, as far as `room` allows; the soonest
// first.
void PresencePlanner::KeepForReuse(std::size_t place, std::int64_t room,
                                   std::vector<int>* changed) {
  const std::vector<int>& needs = needs_[place];
  for (const int unit : *changed) {
    const bool wanted =
        gathered_.Contains(unit) || std::binary_search(needs.begin(), needs.end(), unit);
    if (wanted) {
      SetKept(unit, false);
    } else if (of(unit).present && !of(unit).persistent && IsUsedSoonBehind(place, unit)) {
      SetKept(unit, true);
    }
  }
  while (kept_bytes_ > room) {
    const int last = kept_.rbegin()->second;
    SetKept(last, false);
    changed->push_back(last);
  }
}

// Units gathered ahead are already fetched. The budget applies to the units after them: their
// copies have the time of one place before the gather needs them.
std::int64_t PresencePlanner::FetchBudget(const std::vector<int>& changed) {
  for (const int unit : changed) {
    const bool ahead = gathered_.Contains(unit);
    if (std::exchange(of(unit).ahead, ahead) == ahead) continue;
    const std::int64_t bytes = input_.units[static_cast<std::size_t>(unit)].fetched_bytes;
    ahead_bytes_ += ahead ? bytes : -bytes;
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t budget = input_.budgets.fetch_bytes;
  return budget > kMost - ahead_bytes_ || budget <= 0 ? budget : budget + ahead_bytes_;
}

void PresencePlanner::Visit(std::size_t place, Changes* presence, Changes* fetched) {
  const ResidencyBudgets& budgets = input_.budgets;
  std::vector<int> changed = std::exchange(arrived_, {});
  const std::int64_t room = FindRoom(needs_[place]);
  gathered_.MoveTo(place, std::min(budgets.prefetch_bytes, room), &changed);
  const std::int64_t fetch_budget = FetchBudget(changed);
  KeepForReuse(place, room - gathered_.bytes(), &changed);
  const std::vector<int>& needs = needs_[place];
  for (const int unit : changed) {
    const bool stays = gathered_.Contains(unit) || of(unit).kept ||
                       (of(unit).persistent && of(unit).present) ||
                       std::binary_search(needs.begin(), needs.end(), unit);
    if (stays == of(unit).present) continue;
    presence->push_back({unit, stays});
    SetPresent(unit, stays);
  }
  fetched_.MoveTo(place, fetch_budget, &changed);
  for (const int unit : changed) {
    const bool away = input_.units[static_cast<std::size_t>(unit)].fetched_bytes > 0;
    const bool comes = away && fetched_.Contains(unit) && !of(unit).present;
    if (comes != of(unit).fetched) fetched->push_back({unit, comes});
    of(unit).fetched = comes;
  }
}

void PresencePlanner::Rest(Changes* presence, Changes* fetched) {
  for (int unit = 0; unit < static_cast<int>(states_.size()); ++unit) {
    SetKept(unit, false);
    if (of(unit).fetched) fetched->push_back({unit, false});
    of(unit).fetched = false;
    if (!of(unit).present || of(unit).persistent) continue;
    presence->push_back({unit, false});
    of(unit).present = false;
  }
  arrived_.clear();
}

Lookahead::Lookahead(const std::vector<std::vector<int>>& needs, const std::vector<int>& stretch,
                     std::vector<std::int64_t> bytes)
    : needs_(needs),
      stretch_(stretch),
      bytes_(std::move(bytes)),
      visits_of_(bytes_.size(), 0),
      is_needed_(bytes_.size(), false) {
  for (std::size_t place = 0; place < needs.size(); ++place) {
    for (const int unit : needs[place]) visits_.push_back({place, static_cast<std::size_t>(unit)});
  }
}

void Lookahead::SetFree(int unit) {
  if (Contains(unit)) sum_ -= bytes_[static_cast<std::size_t>(unit)];
  bytes_[static_cast<std::size_t>(unit)] = 0;
}

void Lookahead::AddVisit(std::size_t unit, int count) {
  if (IsCounted(unit)) sum_ -= bytes_[unit];
  visits_of_[unit] += count;
  if (IsCounted(unit)) sum_ += bytes_[unit];
}

void Lookahead::SetNeeded(std::size_t unit, bool needed) {
  if (IsCounted(unit)) sum_ -= bytes_[unit];
  is_needed_[unit] = needed;
  if (IsCounted(unit)) sum_ += bytes_[unit];
}

bool Lookahead::Grow(std::size_t place, std::int64_t budget) {
  if (end_ == visits_.size() || budget <= 0) return false;
  const Visit& next = visits_[end_];
  if (stretch_[next.place] != stretch_[place]) return false;
  const bool adds = visits_of_[next.unit] == 0 && !is_needed_[next.unit];
  if (adds && sum_ + bytes_[next.unit] > budget) return false;
  AddVisit(next.unit, 1);
  ++end_;
  return true;
}

void Lookahead::MoveTo(std::size_t place, std::int64_t budget, std::vector<int>* changed) {
  changed->insert(changed->end(), needed_.begin(), needed_.end());
  for (const int unit : needed_) SetNeeded(static_cast<std::size_t>(unit), false);
  for (; begin_ < visits_.size() && visits_[begin_].place <= place; ++begin_) {
    if (begin_ >= end_) continue;
    AddVisit(visits_[begin_].unit, -1);
    changed->push_back(static_cast<int>(visits_[begin_].unit));
  }
  end_ = std::max(begin_, end_);
  needed_ = needs_[place];
  for (const int unit : needed_) SetNeeded(static_cast<std::size_t>(unit), true);
  changed->insert(changed->end(), needed_.begin(), needed_.end());
  while (end_ > begin_ && (sum_ > budget || budget <= 0)) {
    --end_;
    AddVisit(visits_[end_].unit, -1);
    changed->push_back(static_cast<int>(visits_[end_].unit));
  }
  while (Grow(place, budget)) changed->push_back(static_cast<int>(visits_[end_ - 1].unit));
}

}  // namespace ds::zero
