#include "runtime/config/recompute_choice.h"

#include <gmock/gmock.h>

#include <vector>

namespace ds::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RecomputeChoice::Kind;

std::vector<int> Recomputed(std::string_view text, int blocks) {
  std::vector<int> chosen;
  for (int i = 0; i < blocks; ++i) {
    if (IsRecomputed(ParseRecompute(text).value(), i, blocks)) chosen.push_back(i);
  }
  return chosen;
}

TEST(RecomputeChoiceTest, BlocksBetweenTheFirstAndTheLast) {
  EXPECT_THAT(Recomputed("none", 6), ElementsAre());
  EXPECT_THAT(Recomputed("full", 6), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Recomputed("every:1", 6), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Recomputed("every:2", 6), ElementsAre(1, 3));
  EXPECT_THAT(Recomputed("every:9", 6), ElementsAre(1));
  EXPECT_THAT(Recomputed("full", 2), ElementsAre());
  EXPECT_THAT(Recomputed("attention", 6), ElementsAre());
  EXPECT_EQ(ParseRecompute("attention")->kind, Kind::kAttention);
}

TEST(RecomputeChoiceTest, RefusesTheRest) {
  for (const char* const text : {"", "all", "every", "every:", "every:0", "every:-1", "every:x",
                                 "every:2 ", "every:99999999999", "Full"}) {
    EXPECT_THAT(ParseRecompute(text).status().message(), HasSubstr("none of none, full")) << text;
  }
}

}  // namespace
}  // namespace ds::config
