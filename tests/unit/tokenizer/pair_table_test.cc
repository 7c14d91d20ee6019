#include "runtime/tokenizer/models/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace ds::tokenizer {
namespace {

TEST(PairTableTest, AnEmptyOneFindsNothing) {
  EXPECT_EQ(PairTable().Find(0, 0).rank, PairTable::kNone);
}

TEST(PairTableTest, DistinguishesLeftFromRight) {
  PairTable table(2);
  table.Add(1, 2, {.rank = 5, .id = 9});
  table.Add(2, 1, {.rank = 0, .id = 8});
  EXPECT_EQ(table.Find(1, 2).rank, 5U);
  EXPECT_EQ(table.Find(1, 2).id, 9U);
  EXPECT_EQ(table.Find(2, 1).rank, 0U);
  EXPECT_EQ(table.Find(1, 1).rank, PairTable::kNone);
}

TEST(PairTableTest, TheLastMergeOfAPairCounts) {
  PairTable table(2);
  table.Add(3, 4, {.rank = 1, .id = 7});
  table.Add(3, 4, {.rank = 2, .id = 6});
  EXPECT_EQ(table.Find(3, 4).rank, 2U);
  EXPECT_EQ(table.Find(3, 4).id, 6U);
}

// Few different tokens make many pairs that differ in one bit, and a full table makes them meet.
TEST(PairTableTest, AFullOneMatchesAMap) {
  std::mt19937 random(11);
  constexpr std::uint32_t kTokens = 64;
  for (const std::size_t count : {1U, 15U, 500U}) {
    PairTable table(count);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> expected;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const std::uint32_t left = random() % kTokens, right = random() % kTokens;
      table.Add(left, right, {.rank = rank, .id = rank + 1});
      expected[{left, right}] = rank;
    }
    for (std::uint32_t left = 0; left < kTokens; ++left) {
      for (std::uint32_t right = 0; right < kTokens; ++right) {
        const auto found = expected.find({left, right});
        const PairTable::Merge merge = table.Find(left, right);
        ASSERT_EQ(merge.rank, found == expected.end() ? PairTable::kNone : found->second)
            << count << " pairs: " << left << " " << right;
        if (found == expected.end()) continue;
        ASSERT_EQ(merge.id, found->second + 1);
      }
    }
  }
}

}  // namespace
}  // namespace ds::tokenizer
