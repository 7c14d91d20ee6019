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
      .positions = {}};
  for (int unit = 0; unit < kUnits; ++unit) {
    input.positions.push_back({PassPosition::Kind::kForward, 0, unit});
  }
  for (int unit = kUnits - 1; unit >= 0; --unit) {
    input.positions.push_back({PassPosition::Kind::kBackward, 0, unit});
  }
  input.positions.push_back({PassPosition::Kind::kEndOfMicroBatch});
  return input;
}

// So a copy from the host has as long as a place takes, forward and backward, also where units are
// gathered a place before they are needed. No more of them is there than has to be.
TEST(FetchPlan, BringsShardsAPlaceBeforeTheyAreGathered) {
  const std::int64_t largest = ResidencyBudgets::kLargestNeed;
  for (const std::int64_t prefetch_bytes : {std::int64_t{0}, largest, 4 * kShard}) {
    SCOPED_TRACE(prefetch_bytes);
    const ResidencyPlan plan(MakeInput({.prefetch_bytes = prefetch_bytes, .fetch_bytes = largest}));
    std::map<int, int> fetched_at;
    for (int position = 0; position < static_cast<int>(plan.positions().size()); ++position) {
      for (const Action& action : plan.ListActions(position - 1, position)) {
        if (action.kind == Action::Kind::kFetch) fetched_at[action.unit] = position;
        if (action.kind == Action::Kind::kOffload) fetched_at.erase(action.unit);
        if (action.kind == Action::Kind::kGather && position > 0) {
          EXPECT_LT(fetched_at.at(action.unit), position) << action.unit;
        }
      }
      EXPECT_LE(fetched_at.size(), 1U) << "place " << position;
    }
  }
}

TEST(FetchPlan, BringsShardsWithTheirGatherWithoutABudget) {
  const ResidencyPlan plan(MakeInput({.prefetch_bytes = ResidencyBudgets::kLargestNeed}));
  const std::vector<Action> first = plan.ListActions(0, 1);
  const auto has = [&](Action::Kind kind) {
    return std::find(first.begin(), first.end(), Action{kind, 2}) != first.end();
  };
  EXPECT_TRUE(has(Action::Kind::kFetch) && has(Action::Kind::kGather));
}

}  // namespace
}  // namespace ds::zero
