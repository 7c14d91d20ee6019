#include "runtime/plan/zero/residency_plan.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/plan/zero/presence_planner.h"

namespace ds::zero {
namespace {

constexpr auto kNone = static_cast<std::size_t>(-1);

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
  void AddPlaces(const std::vector<Place>& places) {
    Add(places.size());
    for (const Place& place : places) {
      Add(place.kind);
      Add(place.micro_batch);
      Add(place.unit);
    }
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

// Returns the net changes between two places.
std::vector<UnitChange> AddUp(const std::vector<std::vector<UnitChange>>& changes, int from,
                              int to) {
  if (to == from + 1) return changes.at(static_cast<std::size_t>(to));
  std::vector<UnitChange> sum;
  for (int place = from + 1; place <= to; ++place) {
    for (const UnitChange& change : changes.at(static_cast<std::size_t>(place))) {
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

std::vector<int> ResidencyPlan::Input::ListNeeds(const Place& place) const {
  if (!place.is_visit()) return {};
  const PlannedUnit& unit = units.at(static_cast<std::size_t>(place.unit));
  if (place.kind == Place::Kind::kBackward && !unit.backward_reads) return {};
  std::vector<int> needs = unit.also_reads;
  needs.push_back(place.unit);
  std::sort(needs.begin(), needs.end());
  return needs;
}

void ResidencyPlan::ResolveBudgets() {
  const auto resolve = [&](std::int64_t PlannedUnit::*bytes, std::int64_t* budget) {
    if (*budget != ResidencyBudgets::kLargestPlace) return;
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
  presence_.resize(input_.places.size());
  fetched_.resize(input_.places.size());
  if (!input_.sharding.parameters) return;
  PresencePlanner planner(input_);
  for (std::size_t i = 0; i < input_.places.size(); ++i) {
    planner.GoTo(i, &presence_[i], &fetched_[i]);
  }
}

// Appends the actions for a gradient that ends before the place, after those in flight.
void ResidencyPlan::AppendEnd(int unit, std::size_t place, std::vector<int>* under_way) {
  using Kind = Action::Kind;
  std::vector<Action>& actions = gradients_[place];
  const bool reduce =
      (input_.sharding.gradients || input_.reduce_whole_gradients) && !input_.hold_gradients;
  if (!reduce || !input_.overlap) {
    actions.push_back({reduce ? Kind::kReduce : Kind::kKeepWhole, unit});
    return;
  }
  const auto bytes_of = [&](int other) {
    return input_.units[static_cast<std::size_t>(other)].reduced_bytes;
  };
  std::int64_t bytes = bytes_of(unit);
  for (const int other : *under_way) bytes += bytes_of(other);
  while (!under_way->empty() && bytes > input_.budgets.reduce_bytes) {
    bytes -= bytes_of(under_way->front());
    actions.push_back({Kind::kAwaitGradients, under_way->front()});
    under_way->erase(under_way->begin());
  }
  actions.push_back({Kind::kReduce, unit});
  under_way->push_back(unit);
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

// Appends to each of the places (begin, end] the units with gradients that end before it, if
// [begin, end) are the backward places of one micro-batch.
void ResidencyPlan::AppendEnds(std::size_t begin, std::size_t end,
                               std::vector<std::vector<int>>* ends) const {
  std::vector<std::size_t> last(input_.units.size(), kNone);  // by unit: place that adds to it
  for (std::size_t i = begin; i < end; ++i) {
    const auto unit = static_cast<std::size_t>(input_.places[i].unit);
    last[unit] = i;
    for (const int other : input_.units[unit].also_reads) last[static_cast<std::size_t>(other)] = i;
  }
  const int first = input_.pass ? input_.pass->first : 0;
  for (const int unit : ListEnding()) {
    const std::size_t place = last[static_cast<std::size_t>(unit)];
    const bool contributes = place != kNone;
    const auto& ended = input_.ended;
    if (!contributes && std::find(ended.begin(), ended.end(), unit) != ended.end()) continue;
    const std::size_t next = contributes && unit >= first ? place + 1 : end;
    if (next < ends->size()) (*ends)[next].push_back(unit);
  }
}

void ResidencyPlan::PlanGradients() {
  gradients_.resize(input_.places.size());
  if (input_.gradients_come_later) return;
  std::vector<int> under_way = input_.reducing;  // in order of their begin
  std::vector<std::vector<int>> ends(input_.places.size());
  std::size_t known = 0;  // places before it have their ends
  for (std::size_t i = 0; i < input_.places.size(); ++i) {
    const bool ends_micro_batch = input_.places[i].kind == Place::Kind::kEndOfMicroBatch;
    if (i >= known && (input_.places[i].is_backward() || ends_micro_batch)) {
      std::size_t end = i;
      while (end < input_.places.size() && input_.places[end].is_backward()) ++end;
      AppendEnds(i, end, &ends);
      known = end + 1;
    }
    for (const int unit : ends[i]) AppendEnd(unit, i, &under_way);
    if (!ends_micro_batch) continue;
    for (const int unit : std::exchange(under_way, {})) {
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
      actions->push_back({Kind::kStow, change.unit});
    }
  }
  for (const UnitChange& change : presence) {
    if (!change.begins) continue;
    const bool away = input_.units[static_cast<std::size_t>(change.unit)].fetched_bytes > 0;
    if (away && std::find(there.begin(), there.end(), change.unit) == there.end()) {
      actions->push_back({Kind::kFetch, change.unit});
    }
    actions->push_back({Kind::kGather, change.unit});
    if (away) actions->push_back({Kind::kStow, change.unit});
  }
  for (const UnitChange& change : fetched) {
    if (change.begins) actions->push_back({Kind::kFetch, change.unit});
  }
}

std::vector<Action> ResidencyPlan::ListActions(int from, int to) const {
  using Kind = Action::Kind;
  std::vector<Action> actions;
  const auto append = [&](auto begin, auto end) { actions.insert(actions.end(), begin, end); };
  for (int place = from + 1; place < to; ++place) {
    const std::vector<Action>& gradients = gradients_.at(static_cast<std::size_t>(place));
    append(gradients.begin(), gradients.end());
  }
  const std::vector<Action>& last = gradients_.at(static_cast<std::size_t>(to));
  const auto first_begun = std::find_if(last.begin(), last.end(), [&](const Action& action) {
    return input_.overlap && action.kind == Kind::kReduce;
  });
  append(last.begin(), first_begun);
  AppendMoves(from, to, &actions);
  append(first_begun, last.end());
  const Place& place = input_.places.at(static_cast<std::size_t>(to));
  if (!input_.overlap) return actions;
  for (const int unit : input_.ListNeeds(place)) actions.push_back({Kind::kAwaitParameters, unit});
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
                            input_.reduce_whole_gradients, input_.gradients_come_later}) {
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
  for (const std::vector<Place>* places : {&input_.places, &input_.expected}) {
    hasher.AddPlaces(*places);
  }
  for (std::size_t i = 0; i < input_.places.size(); ++i) {
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
