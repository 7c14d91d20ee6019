#include "runtime/plan/zero/residency_plan.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"

namespace ds::zero {
namespace {

constexpr auto kNone = static_cast<std::size_t>(-1);

// Lookahead: the units that the coming visits need, in order, as many as fit into a budget of
// bytes. All moves together take time proportional to the number of visits, for any budget.
class Lookahead {
 public:
  // `needs`: by position, the units it needs. `stretch`: by position, a number that never falls;
  // only positions of the current stretch are considered. `bytes`: by unit. `needs` and `stretch`
  // must outlive this object.
  Lookahead(const std::vector<std::vector<int>>& needs, const std::vector<int>& stretch,
            std::vector<std::int64_t> bytes);

  // Moves to a later position. The units which that position needs are not counted. Appends to
  // `changed` the units with a possibly changed Contains or need, in the order of their visits.
  void MoveTo(std::size_t position, std::int64_t budget, std::vector<int>* changed);

  // From now on the unit uses none of the budget.
  void SetFree(int unit);

  // True if the unit is needed soon enough. False for units that the current position needs.
  bool Contains(int unit) const { return IsCounted(static_cast<std::size_t>(unit)); }
  std::int64_t bytes() const { return sum_; }  // of all contained units

 private:
  struct Visit {
    std::size_t position = 0;
    std::size_t unit = 0;
  };

  bool IsCounted(std::size_t unit) const { return visits_of_[unit] > 0 && !is_needed_[unit]; }
  bool Grow(std::size_t position, std::int64_t budget);
  void AddVisit(std::size_t unit, int count);
  void SetNeeded(std::size_t unit, bool needed);

  const std::vector<std::vector<int>>& needs_;
  const std::vector<int>& stretch_;
  std::vector<std::int64_t> bytes_;
  std::vector<Visit> visits_;  // at all positions
  std::size_t begin_ = 0;      // of the visits within the budget
  std::size_t end_ = 0;
  std::vector<int> visits_of_;   // by unit: its visits in [begin_, end_)
  std::vector<bool> is_needed_;  // by unit: at the current position
  std::vector<int> needed_;      // is_needed_ as a list
  std::int64_t sum_ = 0;
};

// PresencePlanner: computes, from position to position of a plan, the present units and the units
// with shards fetched ahead of their gather.
class PresencePlanner {
 public:
  using Changes = std::vector<UnitChange>;

  // `input` must outlive this object.
  explicit PresencePlanner(const ResidencyPlan::Input& input);

  // Moves to the next position of the plan; appends the changes there.
  void GoTo(std::size_t position, Changes* presence, Changes* fetched);

 private:
  // The state of one unit.
  struct State {
    bool present = false;
    bool fetched = false;
    bool retained = false;               // present for the sake of its next use
    bool ahead = false;                  // gathered before it is needed
    bool persistent = false;             // stays once it is present
    std::size_t next_use = 0;            // in `uses`: the first one that the plan has not passed
    std::vector<std::size_t> uses = {};  // positions, including the expected ones after the plan
  };

  State& of(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  std::int64_t BytesOf(const std::vector<int>& units) const;
  void NoteNeeds(std::size_t position, const std::vector<int>& units);
  void ChoosePersistent();
  void SetPresent(int unit, bool present);
  std::int64_t FindCapacity(const std::vector<int>& needs) const;
  bool IsUsedSoonAfter(std::size_t position, int unit);
  void SetRetained(int unit, bool retained);
  void KeepForReuse(std::size_t position, std::int64_t capacity, std::vector<int>* changed);
  std::int64_t FetchBudget(const std::vector<int>& changed);
  void Visit(std::size_t position, Changes* presence, Changes* fetched);
  void ReleaseAll(Changes* presence, Changes* fetched);

  const ResidencyPlan::Input& input_;
  const std::vector<std::vector<int>> needs_;  // by position
  const std::vector<int> stretch_;             // by position: idle positions before it
  std::vector<std::int64_t> bytes_before_{0};  // by position: needs of all earlier positions
  std::vector<State> states_;
  std::vector<int> arrived_;  // initial units of the plan, until its first visit
  Lookahead gathered_;
  Lookahead fetched_;
  std::set<std::pair<std::size_t, int>> retained_;  // (next use, unit)
  std::int64_t retained_bytes_ = 0;
  std::int64_t persistent_bytes_ = 0;  // of persistent units that are present
  std::int64_t ahead_bytes_ = 0;       // of the shards of units gathered ahead
};

std::vector<std::vector<int>> ListAllNeeds(const ResidencyPlan::Input& input) {
  std::vector<std::vector<int>> needs;
  for (const PassPosition& position : input.positions) needs.push_back(input.ListNeeds(position));
  return needs;
}

std::vector<int> CountIdlePositions(const std::vector<PassPosition>& positions) {
  std::vector<int> before{0};
  for (const PassPosition& position : positions) {
    before.push_back(before.back() + (position.kind == PassPosition::Kind::kBetweenPasses ? 1 : 0));
  }
  return before;
}

std::vector<std::int64_t> ListBytes(const std::vector<PlannedUnit>& units,
                                    std::int64_t PlannedUnit::*bytes) {
  std::vector<std::int64_t> all;
  for (const PlannedUnit& unit : units) all.push_back(unit.*bytes);
  return all;
}

PresencePlanner::PresencePlanner(const ResidencyPlan::Input& input)
    : input_(input),
      needs_(ListAllNeeds(input)),
      stretch_(CountIdlePositions(input.positions)),
      states_(input.units.size()),
      arrived_(input.present),
      gathered_(needs_, stretch_, ListBytes(input.units, &PlannedUnit::bytes)),
      fetched_(needs_, stretch_, ListBytes(input.units, &PlannedUnit::fetched_bytes)) {
  ChoosePersistent();
  for (const int unit : input.present) SetPresent(unit, true);
  for (const int unit : input.fetched) of(unit).fetched = true;
  arrived_.insert(arrived_.end(), input.fetched.begin(), input.fetched.end());
  for (std::size_t position = 0; position < needs_.size(); ++position)
    NoteNeeds(position, needs_[position]);
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

std::int64_t PresencePlanner::FindCapacity(const std::vector<int>& needs) const {
  std::int64_t live = persistent_bytes_;
  for (const int unit : needs) {
    const State& state = states_[static_cast<std::size_t>(unit)];
    if (!state.persistent || !state.present) live += BytesOf({unit});
  }
  return std::max<std::int64_t>(0, input_.budgets.max_live_bytes - live);
}

void PresencePlanner::NoteNeeds(std::size_t position, const std::vector<int>& units) {
  bytes_before_.push_back(bytes_before_.back() + BytesOf(units));
  for (const int unit : units) of(unit).uses.push_back(position);
}

std::int64_t PresencePlanner::BytesOf(const std::vector<int>& units) const {
  std::int64_t bytes = 0;
  for (const int unit : units) bytes += input_.units[static_cast<std::size_t>(unit)].bytes;
  return bytes;
}

void PresencePlanner::GoTo(std::size_t position, Changes* presence, Changes* fetched) {
  const PassPosition& next = input_.positions[position];
  if (next.kind == PassPosition::Kind::kBetweenPasses) ReleaseAll(presence, fetched);
  if (next.is_visit()) Visit(position, presence, fetched);
}

// True if the positions between this one and the unit's next use need less than the budget, without
// a rest.
bool PresencePlanner::IsUsedSoonAfter(std::size_t position, int unit) {
  State& state = of(unit);
  while (state.next_use < state.uses.size() && state.uses[state.next_use] < position) {
    ++state.next_use;
  }
  if (state.next_use == state.uses.size()) return false;
  const std::size_t use = state.uses[state.next_use];
  const int stretch = use < needs_.size() ? stretch_[use] : stretch_.back();
  return stretch == stretch_[position] &&
         bytes_before_[use] - bytes_before_[position] < input_.budgets.reuse_bytes;
}

void PresencePlanner::SetRetained(int unit, bool retained) {
  State& state = of(unit);
  if (state.retained == retained) return;
  state.retained = retained;
  const std::pair entry(state.uses[state.next_use], unit);
  if (retained) {
    retained_.insert(entry);
  } else {
    retained_.erase(entry);
  }
  retained_bytes_ += (retained ? 1 : -1) * BytesOf({unit});
}

// Keeps units that would be released but are used again soon, as far as `capacity` allows; the
// soonest first.
void PresencePlanner::KeepForReuse(std::size_t position, std::int64_t capacity,
                                   std::vector<int>* changed) {
  const std::vector<int>& needs = needs_[position];
  for (const int unit : *changed) {
    const bool wanted =
        gathered_.Contains(unit) || std::binary_search(needs.begin(), needs.end(), unit);
    if (wanted) {
      SetRetained(unit, false);
    } else if (of(unit).present && !of(unit).persistent && IsUsedSoonAfter(position, unit)) {
      SetRetained(unit, true);
    }
  }
  while (retained_bytes_ > capacity) {
    const int last = retained_.rbegin()->second;
    SetRetained(last, false);
    changed->push_back(last);
  }
}

// Units gathered ahead are already fetched. The budget applies to the units after them: their
// copies have the time of one position before the gather needs them.
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

void PresencePlanner::Visit(std::size_t position, Changes* presence, Changes* fetched) {
  const ResidencyBudgets& budgets = input_.budgets;
  std::vector<int> changed = std::exchange(arrived_, {});
  const std::int64_t capacity = FindCapacity(needs_[position]);
  gathered_.MoveTo(position, std::min(budgets.prefetch_bytes, capacity), &changed);
  const std::int64_t fetch_budget = FetchBudget(changed);
  KeepForReuse(position, capacity - gathered_.bytes(), &changed);
  const std::vector<int>& needs = needs_[position];
  for (const int unit : changed) {
    const bool stays = gathered_.Contains(unit) || of(unit).retained ||
                       (of(unit).persistent && of(unit).present) ||
                       std::binary_search(needs.begin(), needs.end(), unit);
    if (stays == of(unit).present) continue;
    presence->push_back({unit, stays});
    SetPresent(unit, stays);
  }
  fetched_.MoveTo(position, fetch_budget, &changed);
  for (const int unit : changed) {
    const bool is_offloaded = input_.units[static_cast<std::size_t>(unit)].fetched_bytes > 0;
    const bool comes = is_offloaded && fetched_.Contains(unit) && !of(unit).present;
    if (comes != of(unit).fetched) fetched->push_back({unit, comes});
    of(unit).fetched = comes;
  }
}

void PresencePlanner::ReleaseAll(Changes* presence, Changes* fetched) {
  for (int unit = 0; unit < static_cast<int>(states_.size()); ++unit) {
    SetRetained(unit, false);
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
  for (std::size_t position = 0; position < needs.size(); ++position) {
    for (const int unit : needs[position])
      visits_.push_back({position, static_cast<std::size_t>(unit)});
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

bool Lookahead::Grow(std::size_t position, std::int64_t budget) {
  if (end_ == visits_.size() || budget <= 0) return false;
  const Visit& next = visits_[end_];
  if (stretch_[next.position] != stretch_[position]) return false;
  const bool adds = visits_of_[next.unit] == 0 && !is_needed_[next.unit];
  if (adds && sum_ + bytes_[next.unit] > budget) return false;
  AddVisit(next.unit, 1);
  ++end_;
  return true;
}

void Lookahead::MoveTo(std::size_t position, std::int64_t budget, std::vector<int>* changed) {
  changed->insert(changed->end(), needed_.begin(), needed_.end());
  for (const int unit : needed_) SetNeeded(static_cast<std::size_t>(unit), false);
  for (; begin_ < visits_.size() && visits_[begin_].position <= position; ++begin_) {
    if (begin_ >= end_) continue;
    AddVisit(visits_[begin_].unit, -1);
    changed->push_back(static_cast<int>(visits_[begin_].unit));
  }
  end_ = std::max(begin_, end_);
  needed_ = needs_[position];
  for (const int unit : needed_) SetNeeded(static_cast<std::size_t>(unit), true);
  changed->insert(changed->end(), needed_.begin(), needed_.end());
  while (end_ > begin_ && (sum_ > budget || budget <= 0)) {
    --end_;
    AddVisit(visits_[end_].unit, -1);
    changed->push_back(static_cast<int>(visits_[end_].unit));
  }
  while (Grow(position, budget)) changed->push_back(static_cast<int>(visits_[end_ - 1].unit));
}

// Appends numbers to a hash.
class Hasher {
 public:
  template <typename Number>
  void Add(Number number) {
    hash_ = ExtendKey(hash_, static_cast<std::uint64_t>(number));
  }
  template <typename Number>
  void AddAll(const std::vector<Number>& numbers) {
    Add(numbers.size());
    for (const Number number : numbers) Add(number);
  }
  void AddPositions(const std::vector<PassPosition>& positions) {
    Add(positions.size());
    for (const PassPosition& position : positions) {
      Add(position.kind);
      Add(position.micro_batch);
      Add(position.unit);
    }
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

// Returns the net changes between two positions.
std::vector<UnitChange> AddUp(const std::vector<std::vector<UnitChange>>& changes, int from,
                              int to) {
  if (to == from + 1) return changes.at(static_cast<std::size_t>(to));
  std::vector<UnitChange> sum;
  for (int position = from + 1; position <= to; ++position) {
    for (const UnitChange& change : changes.at(static_cast<std::size_t>(position))) {
      const auto before = std::find_if(sum.begin(), sum.end(), [&](const UnitChange& earlier) {
        return earlier.unit == change.unit;
      });
      if (before == sum.end()) {
        sum.push_back(change);
      } else {
        sum.erase(before);
      }
    }
  }
  return sum;
}

}  // namespace

ResidencyPlan::ResidencyPlan(Input input) : input_(std::move(input)) {
  ResolveBudgets();
  PlanPresence();
  PlanGradients();
  hash_ = ComputeHash();
}

std::vector<int> ResidencyPlan::Input::ListNeeds(const PassPosition& position) const {
  if (!position.is_visit()) return {};
  const PlannedUnit& unit = units.at(static_cast<std::size_t>(position.unit));
  if (position.kind == PassPosition::Kind::kBackward && !unit.backward_reads) return {};
  std::vector<int> needs = unit.also_reads;
  needs.push_back(position.unit);
  std::sort(needs.begin(), needs.end());
  return needs;
}

void ResidencyPlan::ResolveBudgets() {
  const auto resolve = [&](std::int64_t PlannedUnit::*bytes, std::int64_t* budget) {
    if (*budget != ResidencyBudgets::kLargestNeed) return;
    *budget = 0;
    for (const PlannedUnit& unit : input_.units) {
      std::int64_t needed = unit.*bytes;
      for (const int other : unit.also_reads) {
        needed += input_.units.at(static_cast<std::size_t>(other)).*bytes;
      }
      *budget = std::max(*budget, needed);
    }
  };
  resolve(&PlannedUnit::bytes, &input_.budgets.prefetch_bytes);
  resolve(&PlannedUnit::fetched_bytes, &input_.budgets.fetch_bytes);
  resolve(&PlannedUnit::reduced_bytes, &input_.budgets.reduce_bytes);
}

void ResidencyPlan::PlanPresence() {
  presence_.resize(input_.positions.size());
  fetched_.resize(input_.positions.size());
  if (!input_.sharding.parameters) return;
  PresencePlanner planner(input_);
  for (std::size_t i = 0; i < input_.positions.size(); ++i) {
    planner.GoTo(i, &presence_[i], &fetched_[i]);
  }
}

// Appends the actions for a gradient that ends before the position, after those in flight.
void ResidencyPlan::AppendEnd(int unit, std::size_t position, std::vector<int>* in_flight) {
  using Kind = Action::Kind;
  std::vector<Action>& actions = gradients_[position];
  const bool reduce =
      (input_.sharding.gradients || input_.reduce_full_gradients) && !input_.hold_gradients;
  if (!reduce || !input_.overlap) {
    actions.push_back({reduce ? Kind::kReduce : Kind::kKeepFull, unit});
    return;
  }
  const auto bytes_of = [&](int other) {
    return input_.units[static_cast<std::size_t>(other)].reduced_bytes;
  };
  std::int64_t bytes = bytes_of(unit);
  for (const int other : *in_flight) bytes += bytes_of(other);
  while (!in_flight->empty() && bytes > input_.budgets.reduce_bytes) {
    bytes -= bytes_of(in_flight->front());
    actions.push_back({Kind::kAwaitGradients, in_flight->front()});
    in_flight->erase(in_flight->begin());
  }
  actions.push_back({Kind::kReduce, unit});
  in_flight->push_back(unit);
}

// Returns the units with gradients that end in the pass: its own units in descending order, then
// the earlier ones that they also read.
std::vector<int> ResidencyPlan::ListEnding() const {
  const UnitRange pass = input_.pass.value_or(UnitRange{0, static_cast<int>(input_.units.size())});
  const auto is_read = [&](int unit) {
    for (int reader = pass.first; reader < pass.end; ++reader) {
      const auto& reads = input_.units[static_cast<std::size_t>(reader)].also_reads;
      if (std::find(reads.begin(), reads.end(), unit) != reads.end()) return true;
    }
    return false;
  };
  std::vector<int> ending;
  for (int unit = pass.end - 1; unit >= 0; --unit) {
    if (!input_.units[static_cast<std::size_t>(unit)].trained) continue;
    if (unit >= pass.first || is_read(unit)) ending.push_back(unit);
  }
  return ending;
}

// Appends to each of the positions (begin, end] the units with gradients that end before it, if
// [begin, end) are the backward positions of one micro-batch.
void ResidencyPlan::AppendEnds(std::size_t begin, std::size_t end,
                               std::vector<std::vector<int>>* ends) const {
  std::vector<std::size_t> last(input_.units.size(), kNone);  // by unit: position that adds to it
  for (std::size_t i = begin; i < end; ++i) {
    const auto unit = static_cast<std::size_t>(input_.positions[i].unit);
    last[unit] = i;
    for (const int other : input_.units[unit].also_reads) last[static_cast<std::size_t>(other)] = i;
  }
  const int first = input_.pass ? input_.pass->first : 0;
  for (const int unit : ListEnding()) {
    const std::size_t position = last[static_cast<std::size_t>(unit)];
    const bool contributes = position != kNone;
    const auto& ended = input_.ended;
    if (!contributes && std::find(ended.begin(), ended.end(), unit) != ended.end()) continue;
    const std::size_t next = contributes && unit >= first ? position + 1 : end;
    if (next < ends->size()) (*ends)[next].push_back(unit);
  }
}

void ResidencyPlan::PlanGradients() {
  gradients_.resize(input_.positions.size());
  if (input_.gradients_come_later) return;
  std::vector<int> in_flight = input_.reducing;  // in order of their begin
  std::vector<std::vector<int>> ends(input_.positions.size());
  std::size_t known = 0;  // positions before it have their ends
  for (std::size_t i = 0; i < input_.positions.size(); ++i) {
    const bool ends_micro_batch = input_.positions[i].kind == PassPosition::Kind::kEndOfMicroBatch;
    if (i >= known && (input_.positions[i].is_backward() || ends_micro_batch)) {
      std::size_t end = i;
      while (end < input_.positions.size() && input_.positions[end].is_backward()) ++end;
      AppendEnds(i, end, &ends);
      known = end + 1;
    }
    for (const int unit : ends[i]) AppendEnd(unit, i, &in_flight);
    if (!ends_micro_batch) continue;
    for (const int unit : std::exchange(in_flight, {})) {
      gradients_[i].push_back({Action::Kind::kAwaitGradients, unit});
    }
  }
}

void ResidencyPlan::AppendMoves(int from, int to, std::vector<Action>* actions) const {
  using Kind = Action::Kind;
  const std::vector<UnitChange> presence = AddUp(presence_, from, to);
  const std::vector<UnitChange> fetched = AddUp(fetched_, from, to);
  // Releases come first, so that their memory can be reused.
  for (const UnitChange& change : presence) {
    if (!change.begins) actions->push_back({Kind::kRelease, change.unit});
  }
  std::vector<int> there;  // fetched ahead
  for (const UnitChange& change : fetched) {
    if (change.begins) continue;
    const bool is_gathered = std::any_of(
        presence.begin(), presence.end(),
        [&](const UnitChange& other) { return other.begins && other.unit == change.unit; });
    if (is_gathered) {
      there.push_back(change.unit);
    } else {
      actions->push_back({Kind::kOffload, change.unit});
    }
  }
  for (const UnitChange& change : presence) {
    if (!change.begins) continue;
    const bool is_offloaded = input_.units[static_cast<std::size_t>(change.unit)].fetched_bytes > 0;
    if (is_offloaded && std::find(there.begin(), there.end(), change.unit) == there.end()) {
      actions->push_back({Kind::kFetch, change.unit});
    }
    actions->push_back({Kind::kGather, change.unit});
    if (is_offloaded) actions->push_back({Kind::kOffload, change.unit});
  }
  for (const UnitChange& change : fetched) {
    if (change.begins) actions->push_back({Kind::kFetch, change.unit});
  }
}

std::vector<Action> ResidencyPlan::ListActions(int from, int to) const {
  using Kind = Action::Kind;
  std::vector<Action> actions;
  const auto append = [&](auto begin, auto end) { actions.insert(actions.end(), begin, end); };
  for (int position = from + 1; position < to; ++position) {
    const std::vector<Action>& gradients = gradients_.at(static_cast<std::size_t>(position));
    append(gradients.begin(), gradients.end());
  }
  const std::vector<Action>& last = gradients_.at(static_cast<std::size_t>(to));
  const auto first_begun = std::find_if(last.begin(), last.end(), [&](const Action& action) {
    return input_.overlap && action.kind == Kind::kReduce;
  });
  append(last.begin(), first_begun);
  AppendMoves(from, to, &actions);
  append(first_begun, last.end());
  const PassPosition& position = input_.positions.at(static_cast<std::size_t>(to));
  if (!input_.overlap) return actions;
  for (const int unit : input_.ListNeeds(position))
    actions.push_back({Kind::kAwaitParameters, unit});
  return actions;
}

std::uint64_t ResidencyPlan::ComputeHash() const {
  Hasher hasher;
  hasher.Add(input_.units.size());
  for (const PlannedUnit& unit : input_.units) {
    hasher.Add(unit.bytes);
    hasher.Add(unit.fetched_bytes);
    hasher.Add(unit.largest_bytes);
    hasher.Add(unit.reduced_bytes);
    for (const bool is_set : {unit.trained, unit.backward_reads}) hasher.Add(is_set);
    hasher.AddAll(unit.also_reads);
  }
  const config::Sharding& sharding = input_.sharding;
  for (const bool is_set : {sharding.optimizer, sharding.gradients, sharding.parameters,
                            input_.overlap, input_.keeps_parameters, input_.hold_gradients,
                            input_.reduce_full_gradients, input_.gradients_come_later}) {
    hasher.Add(is_set);
  }
  hasher.Add(input_.budgets.prefetch_bytes);
  hasher.Add(input_.budgets.max_live_bytes);
  hasher.Add(input_.budgets.reuse_bytes);
  hasher.Add(input_.budgets.fetch_bytes);
  hasher.Add(input_.budgets.reduce_bytes);
  hasher.Add(input_.budgets.persistent_parameter_bytes);
  hasher.Add(input_.budgets.persistent_bytes);
  if (input_.pass) hasher.AddAll(std::vector<int>{input_.pass->first, input_.pass->end});
  hasher.AddAll(input_.present);
  hasher.AddAll(input_.fetched);
  hasher.AddAll(input_.ended);
  hasher.AddAll(input_.reducing);
  for (const std::vector<PassPosition>* positions : {&input_.positions, &input_.expected}) {
    hasher.AddPositions(*positions);
  }
  for (std::size_t i = 0; i < input_.positions.size(); ++i) {
    for (const std::vector<UnitChange>* changes : {&presence_[i], &fetched_[i]}) {
      hasher.Add(changes->size());
      for (const UnitChange& change : *changes) {
        hasher.Add(change.unit);
        hasher.Add(change.begins);
      }
    }
    hasher.Add(gradients_[i].size());
    for (const Action& action : gradients_[i]) {
      hasher.Add(action.kind);
      hasher.Add(action.unit);
    }
  }
  return hasher.hash();
}

}  // namespace ds::zero
