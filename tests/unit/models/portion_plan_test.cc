// Every small plan of portions is walked through: each query looks at all that it should, at keys
// that are there, and nothing is kept longer than it is needed.

#include "runtime/plan/sequence/portion_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace ds::sequence_parallel {
namespace {

using ::testing::ElementsAre;
using Pairs = std::set<std::pair<int, int>>;  // queries, keys

// Bit queries * (queries - 1) / 2 + keys of `seen`.
LooksAt OfBits(unsigned seen) {
  return [seen](int queries, int keys) {
    return (seen >> static_cast<unsigned>(queries * (queries - 1) / 2 + keys) & 1U) != 0;
  };
}

Pairs ListPairs(const std::vector<PortionStep>& steps) {
  Pairs pairs;
  for (const PortionStep& step : steps) {
    for (const KeyVisit& visit : step.earlier) pairs.insert({step.queries, visit.keys});
  }
  return pairs;
}

// Walks the steps with the keys that wait; forward, a step's own begin to with it.
void ExpectKeysAreThere(const std::vector<PortionStep>& steps, std::set<int> waiting,
                        bool is_forward) {
  for (const PortionStep& step : steps) {
    for (const KeyVisit& visit : step.earlier) {
      EXPECT_TRUE(waiting.contains(visit.keys));
      if (visit.last) waiting.erase(visit.keys);
    }
    if (is_forward && step.keys_wait) waiting.insert(step.queries);
  }
  EXPECT_TRUE(waiting.empty()) << "every one goes with the last who looks at it";
}

TEST(PortionPlan, EverySmallPlanAttendsToTheExpectedTokens) {
  for (int portions = 1; portions <= 5; ++portions) {
    const unsigned plans = 1U << static_cast<unsigned>(portions * (portions - 1) / 2);
    for (unsigned seen = 0; seen < plans; ++seen) {
      SCOPED_TRACE(::testing::Message() << portions << " portions, " << seen);
      Pairs expected;
      std::set<int> looked_at;
      for (int queries = 0; queries < portions; ++queries) {
        for (int keys = 0; keys < queries; ++keys) {
          if (!OfBits(seen)(queries, keys)) continue;
          expected.insert({queries, keys});
          looked_at.insert(keys);
        }
      }
      const auto forward = PlanForward(portions, OfBits(seen));
      const auto backward = PlanBackward(portions, OfBits(seen));
      EXPECT_EQ(ListPairs(forward), expected);
      EXPECT_EQ(ListPairs(backward), expected);
      ExpectKeysAreThere(forward, {}, /*is_forward=*/true);
      ExpectKeysAreThere(backward, looked_at, /*is_forward=*/false);
    }
  }
}

// What comes for a portion's keys comes from its own step and steps behind it in the sample.
TEST(PortionPlan, GradientsOfKeysAreCompleteAtTheirOwnStep) {
  const auto steps = PlanBackward(6, [](int, int) { return true; });
  std::set<int> done;
  for (const PortionStep& step : steps) {
    for (const KeyVisit& visit : step.earlier) EXPECT_FALSE(done.contains(visit.keys));
    done.insert(step.queries);
  }
  EXPECT_EQ(done.size(), 6U);
}

TEST(PortionPlan, AWindowLetsKeysGo) {
  const auto steps = PlanForward(4, [](int queries, int keys) { return queries - keys < 2; });
  EXPECT_THAT(steps,
              ElementsAre(PortionStep{0, {}, true}, PortionStep{1, {{0, true}}, true},
                          PortionStep{2, {{1, true}}, true}, PortionStep{3, {{2, true}}, false}));
}

TEST(PortionPlan, TheLastChunkHasTheRemainder) {
  EXPECT_THAT(CutPortions(10, 4),
              ElementsAre(TokenRange{0, 4}, TokenRange{4, 4}, TokenRange{8, 2}));
  EXPECT_THAT(CutPortions(4, 8), ElementsAre(TokenRange{0, 4}));
}

TEST(PortionPlan, ARankHasARangeOfEveryChunk) {
  constexpr auto kKind = SequenceKind::kUlysses;
  EXPECT_THAT(FindTokens(kKind, 10, 0, 2, 4),
              ElementsAre(TokenRange{0, 2}, TokenRange{4, 2}, TokenRange{8, 1}));
  EXPECT_THAT(FindTokens(kKind, 10, 1, 2, 4),
              ElementsAre(TokenRange{2, 2}, TokenRange{6, 2}, TokenRange{9, 1}));
  EXPECT_THAT(FindTokens(kKind, 10, 1, 2, 10), ElementsAre(TokenRange{5, 5}));
}

}  // namespace
}  // namespace ds::sequence_parallel
