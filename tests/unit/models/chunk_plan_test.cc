// Every small plan of chunks is walked through: each query looks at all that it should, at keys
// that are there, and nothing is kept longer than it is needed.

#include "runtime/plan/sequence/chunk_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace ds::sequence_parallel {
namespace {

using ::testing::ElementsAre;
using Pairs = std::set<std::pair<int, int>>;  // queries, keys

// Bit queries * (queries - 1) / 2 + keys of `seen`.
AttendsTo OfBits(unsigned seen) {
  return [seen](int queries, int keys) {
    return (seen >> static_cast<unsigned>(queries * (queries - 1) / 2 + keys) & 1U) != 0;
  };
}

Pairs ListPairs(const std::vector<ChunkStep>& steps) {
  Pairs pairs;
  for (const ChunkStep& step : steps) {
    for (const KeyVisit& visit : step.earlier) pairs.insert({step.queries, visit.keys});
  }
  return pairs;
}

// Walks the steps with the keys that wait; forward, a step's own begin to with it.
void ExpectKeysAreThere(const std::vector<ChunkStep>& steps, std::set<int> waiting,
                        bool is_forward) {
  for (const ChunkStep& step : steps) {
    for (const KeyVisit& visit : step.earlier) {
      EXPECT_TRUE(waiting.contains(visit.keys));
      if (visit.last) waiting.erase(visit.keys);
    }
    if (is_forward && step.keeps_keys) waiting.insert(step.queries);
  }
  EXPECT_TRUE(waiting.empty()) << "every one goes with the last who looks at it";
}

TEST(ChunkPlan, EverySmallPlanAttendsToTheExpectedTokens) {
  for (int chunks = 1; chunks <= 5; ++chunks) {
    const unsigned plans = 1U << static_cast<unsigned>(chunks * (chunks - 1) / 2);
    for (unsigned seen = 0; seen < plans; ++seen) {
      SCOPED_TRACE(::testing::Message() << chunks << " portions, " << seen);
      Pairs expected;
      std::set<int> looked_at;
      for (int queries = 0; queries < chunks; ++queries) {
        for (int keys = 0; keys < queries; ++keys) {
          if (!OfBits(seen)(queries, keys)) continue;
          expected.insert({queries, keys});
          looked_at.insert(keys);
        }
      }
      const auto forward = PlanForward(chunks, OfBits(seen));
      const auto backward = PlanBackward(chunks, OfBits(seen));
      EXPECT_EQ(ListPairs(forward), expected);
      EXPECT_EQ(ListPairs(backward), expected);
      ExpectKeysAreThere(forward, {}, /*is_forward=*/true);
      ExpectKeysAreThere(backward, looked_at, /*is_forward=*/false);
    }
  }
}

// What comes for a chunk's keys comes from its own step and steps behind it in the sample.
TEST(ChunkPlan, GradientsOfKeysAreCompleteAtTheirOwnStep) {
  const auto steps = PlanBackward(6, [](int, int) { return true; });
  std::set<int> done;
  for (const ChunkStep& step : steps) {
    for (const KeyVisit& visit : step.earlier) EXPECT_FALSE(done.contains(visit.keys));
    done.insert(step.queries);
  }
  EXPECT_EQ(done.size(), 6U);
}

TEST(ChunkPlan, AWindowLetsKeysGo) {
  const auto steps = PlanForward(4, [](int queries, int keys) { return queries - keys < 2; });
  EXPECT_THAT(steps,
              ElementsAre(ChunkStep{0, {}, true}, ChunkStep{1, {{0, true}}, true},
                          ChunkStep{2, {{1, true}}, true}, ChunkStep{3, {{2, true}}, false}));
}

TEST(ChunkPlan, TheLastChunkHasTheRemainder) {
  EXPECT_THAT(SplitIntoChunks(10, 4),
              ElementsAre(TokenRange{0, 4}, TokenRange{4, 4}, TokenRange{8, 2}));
  EXPECT_THAT(SplitIntoChunks(4, 8), ElementsAre(TokenRange{0, 4}));
}

TEST(ChunkPlan, ARankHasARangeOfEveryChunk) {
  constexpr auto kKind = SequenceKind::kUlysses;
  EXPECT_THAT(FindTokens(kKind, 10, 0, 2, 4),
              ElementsAre(TokenRange{0, 2}, TokenRange{4, 2}, TokenRange{8, 1}));
  EXPECT_THAT(FindTokens(kKind, 10, 1, 2, 4),
              ElementsAre(TokenRange{2, 2}, TokenRange{6, 2}, TokenRange{9, 1}));
  EXPECT_THAT(FindTokens(kKind, 10, 1, 2, 10), ElementsAre(TokenRange{5, 5}));
}

}  // namespace
}  // namespace ds::sequence_parallel
