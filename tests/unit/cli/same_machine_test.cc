#include "cli/job/same_machine.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

TEST(SameMachineTest, NamesEachFurtherNameWithTheFirstOne) {
  const auto same = FindSameMachines(
      {{"a", "one"}, {"b", "two"}, {"c", "one"}, {"d", ""}, {"e", ""}, {"f", "one"}}, "hosts");
  ASSERT_EQ(same.size(), 2U);
  EXPECT_EQ(same.at(2).host, "c");
  EXPECT_EQ(same.at(2).message.find("hosts a and c of hosts are one machine"), 0U);
  EXPECT_EQ(same.at(5).message.find("hosts a and f of hosts are one machine"), 0U);
}

TEST(SameMachineTest, DifferentAndUnknownMachinesAreNoProblem) {
  EXPECT_TRUE(FindSameMachines({{"a", "one"}, {"b", "two"}, {"c", ""}, {"d", ""}}, "").empty());
  EXPECT_TRUE(FindSameMachines({}, "").empty());
}

}  // namespace
}  // namespace ds::cli
