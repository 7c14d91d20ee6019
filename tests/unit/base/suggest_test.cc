#include "runtime/base/suggest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ds {
namespace {

TEST(EditDistanceTest, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("tarin", "train"), 1);
  EXPECT_EQ(EditDistance("same", "same"), 0);
}

TEST(NearestTest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> names = {"train", "resume", "report"};
  EXPECT_EQ(Nearest("trian", names), "train");
  EXPECT_EQ(Nearest("rport", names), "report");
  EXPECT_EQ(Nearest("banana", names), "");
  EXPECT_EQ(DidYouMean("resum", names), "; did you mean 'resume'?");
}

}  // namespace
}  // namespace ds
