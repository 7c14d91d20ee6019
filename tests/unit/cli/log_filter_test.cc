#include "cli/flags/log_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace ds::cli {
namespace {

// The ranks below 6 that are shown, by their output or their errors.
std::string Shown(const char* log_ranks, bool errors_only, bool is_stderr) {
  const auto filter = LogFilter::Parse(log_ranks, errors_only);
  if (!filter.ok()) return filter.status().message();
  std::string ranks;
  for (int rank = 0; rank < 6; ++rank) {
    if (filter->Shows(rank, is_stderr)) ranks += std::to_string(rank);
  }
  return ranks;
}

TEST(LogFilterTest, RanksAndRangesInAnyOrder) {
  EXPECT_EQ(Shown("", false, false), "012345");
  EXPECT_EQ(Shown("all", false, true), "012345");
  EXPECT_EQ(Shown("0", false, false), "0");
  EXPECT_EQ(Shown("4-5,0,2-2,4", false, true), "0245");
}

TEST(LogFilterTest, ErrorsOnly) {
  EXPECT_EQ(Shown("", true, false), "");
  EXPECT_EQ(Shown("", true, true), "012345");
  EXPECT_EQ(Shown("1-2", true, true), "12");
}

TEST(LogFilterTest, RefusesInvalidRankLists) {
  for (const char* part : {"x", "-1", "1-", "3-2", "1-2-3", " 1", "99999999999", "ALL"}) {
    EXPECT_EQ(Shown(part, false, false),
              "--log_ranks: '" + std::string(part) +
                  "' is neither a rank nor a range like 2-3; or write all");
  }
  EXPECT_FALSE(LogFilter::Parse("1,").ok());
  EXPECT_FALSE(LogFilter::Parse(",1").ok());
}

TEST(LogFilterTest, RanksThatDoNotExistAreRefused) {
  EXPECT_TRUE(LogFilter::Parse("0-3")->CheckRanks(4).ok());
  EXPECT_TRUE(LogFilter::Parse("all")->CheckRanks(1).ok());
  EXPECT_EQ(LogFilter::Parse("0,2-4")->CheckRanks(4).message(),
            "--log_ranks: there is no rank 4; the job has 4 ranks");
}

}  // namespace
}  // namespace ds::cli
