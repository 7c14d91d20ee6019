// Tensor and sequence ranks lie inside a host where its slots allow it, and it is said where not.

#include "cli/train/train_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "runtime/plan/mesh/mesh.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WorldPlan HostsOf(const std::vector<int>& slots) {
  WorldPlan world;
  for (const int count : slots) {
    JobHost host{.host = "h" + std::to_string(world.hosts.size())};
    host.slots.resize(static_cast<std::size_t>(count));
    for (int slot = 0; slot < count; ++slot) {
      world.ranks.push_back({.rank = static_cast<int>(world.ranks.size())});
    }
    world.hosts.push_back(std::move(host));
  }
  return world;
}

TEST(SplitGroupsTest, GroupsThatDivideEveryHostsSlotsAreInsideIt) {
  EXPECT_THAT(DescribeSplitGroups(HostsOf({4, 4}), {.tensor = 4}), IsEmpty());
  EXPECT_THAT(DescribeSplitGroups(HostsOf({4, 4}), {.pipeline = 2, .tensor = 2}), IsEmpty());
  EXPECT_THAT(DescribeSplitGroups(HostsOf({8, 8}), {.pipeline = 2, .sequence = 2, .tensor = 4}),
              IsEmpty());
  EXPECT_THAT(DescribeSplitGroups(HostsOf({4, 8}), {.sequence = 2, .tensor = 2}), IsEmpty());
  EXPECT_THAT(DescribeSplitGroups(HostsOf({3, 5}), {}), IsEmpty());
}

TEST(SplitGroupsTest, NamesAGroupOnTwoHostsWithASuggestion) {
  EXPECT_THAT(DescribeSplitGroups(HostsOf({2, 2}), {.tensor = 4}),
              ElementsAre("tensor ranks 0 to 3 are on h0 and h1 and communicate in every layer "
                          "over the network between the two: tensor 2 in place of 4 keeps them on "
                          "one host; stages (--pp) may be on several"));
  EXPECT_THAT(DescribeSplitGroups(HostsOf({3, 3}), {.tensor = 2}),
              ElementsAre(HasSubstr("tensor ranks 2 to 3 are on h0 and h1")));
  EXPECT_THAT(DescribeSplitGroups(HostsOf({4, 4}), {.sequence = 4, .tensor = 2}),
              ElementsAre(HasSubstr(
                  "sequence ranks 0 to 6 are on h0 and h1 and communicate in every layer over the "
                  "network between the two: sequence 2 in place of 4 keeps them on one host")));
  EXPECT_EQ(DescribeSplitGroups(HostsOf({2, 2, 2, 2}), {.sequence = 2, .tensor = 4}).size(), 2u);
}

// Over all that two to three hosts of equal slots allow: no group is split that a host could hold.
TEST(SplitGroupsTest, NeverSplitsAGroupThatFitsAHost) {
  for (const int hosts : {2, 3}) {
    for (const int slots : {2, 4, 6, 8}) {
      const WorldPlan world = HostsOf(std::vector<int>(static_cast<std::size_t>(hosts), slots));
      for (const int tensor : {1, 2, 3, 4, 6, 8}) {
        for (const int sequence : {1, 2, 3, 4}) {
          const config::ParallelConfig degrees{.sequence = sequence, .tensor = tensor};
          if (hosts * slots % (sequence * tensor) != 0) continue;
          const bool fits = slots % (sequence * tensor) == 0;
          EXPECT_EQ(DescribeSplitGroups(world, degrees).empty(), fits)
              << hosts << " x " << slots << ": tensor " << tensor << ", sequence " << sequence;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ds::cli
