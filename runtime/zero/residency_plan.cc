#include "runtime/zero/residency_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"

namespace ds::zero {
namespace {

bool Contains(const std::vector<int>& units, int unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

bool IsVisit(const Place& place) {
  return place.kind == Place::Kind::kForward || place.kind == Place::Kind::kBackward;
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
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace

StatusOr<ResidencyPlan> ResidencyPlan::Make(Input input) {
  ResidencyPlan plan(std::move(input));
  DS_RETURN_IF_ERROR(plan.PlanPresence());
  plan.PlanGradients();
  plan.hash_ = plan.ComputeHash();
  return plan;
}

std::vector<int> ResidencyPlan::ListNeeds(const Place& place) const {
  if (!IsVisit(place)) return {};
  std::vector<int> needs = input_.units.at(static_cast<std::size_t>(place.unit)).also_reads;
  needs.push_back(place.unit);
  std::sort(needs.begin(), needs.end());
  return needs;
}

Status ResidencyPlan::PlanPresence() {
  present_.resize(input_.places.size());
  if (!input_.sharding.parameters) return OkStatus();
  for (std::size_t i = 0; i < input_.places.size(); ++i) {
    const Place& place = input_.places[i];
    if (place.kind == Place::Kind::kRest) continue;
    if (place.kind == Place::Kind::kEndOfMicroBatch) {
      present_[i] = PresentAt(static_cast<int>(i) - 1);
      continue;
    }
    present_[i] = ListNeeds(place);
    std::int64_t needed = 0;
    for (const int unit : present_[i]) needed += input_.units[static_cast<std::size_t>(unit)].bytes;
    if (needed > input_.budgets.max_live_bytes) {
      return InvalidArgumentError("unit " + std::to_string(place.unit) +
                                  " and what it also reads take " + std::to_string(needed) +
                                  " bytes, and " + std::to_string(input_.budgets.max_live_bytes) +
                                  " may be gathered at once");
    }
    const std::int64_t ahead =
        std::min(input_.budgets.prefetch_bytes, input_.budgets.max_live_bytes - needed);
    Prefetch(i, ahead, &present_[i]);
  }
  return OkStatus();
}

// Adds the units that the places to come need, one after the other, as long as they fit.
void ResidencyPlan::Prefetch(std::size_t place, std::int64_t bytes,
                             std::vector<int>* present) const {
  if (bytes <= 0) return;
  for (std::size_t next = place + 1; next < input_.places.size(); ++next) {
    if (input_.places[next].kind == Place::Kind::kRest) return;
    for (const int unit : ListNeeds(input_.places[next])) {
      if (Contains(*present, unit)) continue;
      bytes -= input_.units[static_cast<std::size_t>(unit)].bytes;
      if (bytes < 0) return;
      present->push_back(unit);
    }
  }
}

void ResidencyPlan::PlanGradients() {
  ending_.resize(input_.places.size());
  std::map<std::int64_t, int> first_ended;  // by micro-batch: from this unit on all have ended
  for (std::size_t i = 0; i < input_.places.size(); ++i) {
    const Place& place = input_.places[i];
    const bool backward = place.kind == Place::Kind::kBackward;
    if (!backward && place.kind != Place::Kind::kEndOfMicroBatch) continue;
    const int count = static_cast<int>(input_.units.size());
    int& ended = first_ended.try_emplace(place.micro_batch, count).first->second;
    const int end = backward ? place.unit + 1 : 0;
    DS_CHECK_MSG(end < ended || ended == count, "a backward pass goes upwards");
    while (ended > end) {
      --ended;
      if (input_.units[static_cast<std::size_t>(ended)].trained) ending_[i].push_back(ended);
    }
  }
}

const std::vector<int>& ResidencyPlan::PresentAt(int place) const {
  return place < 0 ? input_.present : present_.at(static_cast<std::size_t>(place));
}

std::vector<Action> ResidencyPlan::ListActions(int from, int to) const {
  using Kind = Action::Kind;
  const bool reduce = input_.sharding.gradients && !input_.hold_gradients;
  std::vector<Action> actions;
  for (int place = from + 1; place <= to; ++place) {
    for (const int unit : ending_.at(static_cast<std::size_t>(place))) {
      actions.push_back({reduce ? Kind::kReduce : Kind::kKeepWhole, unit});
    }
  }
  // First what goes, so that its memory can be taken again.
  for (const int unit : PresentAt(from)) {
    if (!Contains(PresentAt(to), unit)) actions.push_back({Kind::kRelease, unit});
  }
  for (const int unit : PresentAt(to)) {
    if (!Contains(PresentAt(from), unit)) actions.push_back({Kind::kGather, unit});
  }
  return actions;
}

std::uint64_t ResidencyPlan::ComputeHash() const {
  Hasher hasher;
  hasher.Add(input_.units.size());
  for (const PlannedUnit& unit : input_.units) {
    hasher.Add(unit.bytes);
    hasher.Add(unit.trained);
    hasher.AddAll(unit.also_reads);
  }
  const config::Sharding& sharding = input_.sharding;
  for (const bool is_set :
       {sharding.optimizer, sharding.gradients, sharding.parameters, input_.hold_gradients}) {
    hasher.Add(is_set);
  }
  hasher.Add(input_.budgets.prefetch_bytes);
  hasher.Add(input_.budgets.max_live_bytes);
  hasher.AddAll(input_.present);
  for (std::size_t i = 0; i < input_.places.size(); ++i) {
    hasher.Add(input_.places[i].kind);
    hasher.Add(input_.places[i].micro_batch);
    hasher.Add(input_.places[i].unit);
    hasher.AddAll(present_[i]);
    hasher.AddAll(ending_[i]);
  }
  return hasher.hash();
}

}  // namespace ds::zero
