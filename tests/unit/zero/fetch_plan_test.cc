// When a plan brings shards from another tier, against the place that gathers them.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {
namespace {

constexpr int kUnits = 6;
constexpr std::int64_t kShard = 5;

ResidencyPlan::Input MakeInput(const ResidencyBudgets& budgets) {
  ResidencyPlan::Input input{
      .units = std::vector<PlannedUnit>(
          kUnits, {.bytes = 2 * kShard, .fetched_bytes = kShard, .trained = true}),
      .sharding = {.optimizer = true, .gradients = true, .parameters = true},
      .budgets = budgets,
      .overlap = true,
      .places = {}};
  for (int unit = 0; unit < kUnits; ++unit) {
    input.places.push_back({Place::Kind::kForward, 0, unit});
  }
  for (int unit = kUnits - 1; unit >= 0; --unit) {
    input.places.push_back({Place::Kind::kBackward, 0, unit});
  }
  input.places.push_back({Place::Kind::kEndOfMicroBatch});
  return input;
}

// So a copy from the host has as long as a place takes, forward and backward, also where units are
// gathered a place before they are needed. No more of them is there than has to be.
TEST(FetchPlan, BringsShardsAPlaceBeforeTheyAreGathered) {
  const std::int64_t largest = ResidencyBudgets::kLargestPlace;
  for (const std::int64_t prefetch_bytes : {std::int64_t{0}, largest, 4 * kShard}) {
    SCOPED_TRACE(prefetch_bytes);
    const ResidencyPlan plan(MakeInput({.prefetch_bytes = prefetch_bytes, .fetch_bytes = largest}));
    std::map<int, int> fetched_at;
    for (int place = 0; place < static_cast<int>(plan.places().size()); ++place) {
      for (const Action& action : plan.ListActions(place - 1, place)) {
        if (action.kind == Action::Kind::kFetch) fetched_at[action.unit] = place;
        if (action.kind == Action::Kind::kStow) fetched_at.erase(action.unit);
        if (action.kind == Action::Kind::kGather && place > 0) {
          EXPECT_LT(fetched_at.at(action.unit), place) << action.unit;
        }
      }
      EXPECT_LE(fetched_at.size(), 1U) << "place " << place;
    }
  }
}

TEST(FetchPlan, BringsShardsWithTheirGatherWithoutABudget) {
  const ResidencyPlan plan(MakeInput({.prefetch_bytes = ResidencyBudgets::kLargestPlace}));
  const std::vector<Action> first = plan.ListActions(0, 1);
  const auto has = [&](Action::Kind kind) {
    return std::find(first.begin(), first.end(), Action{kind, 2}) != first.end();
  };
  EXPECT_TRUE(has(Action::Kind::kFetch) && has(Action::Kind::kGather));
}

}  // namespace
}  // namespace ds::zero
