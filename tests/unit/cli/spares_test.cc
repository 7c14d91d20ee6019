#include "cli/job/spares.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

TEST(SparePoolTest, GivesTheFirstThatFitsAndEachOnce) {
  SparePool pool({4, 2, 4});
  EXPECT_EQ(pool.Take(3), std::nullopt);
  EXPECT_TRUE(pool.Covers({4, 4, 2}));
  EXPECT_FALSE(pool.Covers({4, 4, 4}));
  EXPECT_EQ(pool.Take(4), 0);
  EXPECT_FALSE(pool.Covers({4, 4}));
  EXPECT_EQ(pool.Take(4), 2);
  EXPECT_EQ(pool.Take(4), std::nullopt);
  EXPECT_EQ(pool.Take(2), 1);
  EXPECT_TRUE(pool.Covers({}));
}

}  // namespace
}  // namespace ds::cli
