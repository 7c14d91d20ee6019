#include "runtime/comm/net/rank_locations.h"

#include <gtest/gtest.h>

namespace ds::comm {
namespace {

TEST(RankLocationsTest, RanksAreNumberedHostByHost) {
  const RankLocations layout({2, 1, 3});
  EXPECT_EQ(layout.size(), 6);
  EXPECT_EQ(layout.hosts(), 3);
  for (int host = 0, rank = 0; host < 3; ++host) {
    for (int local = 0; local < layout.count_on(host); ++local, ++rank) {
      EXPECT_EQ(layout.LocationOf(rank).host, host);
      EXPECT_EQ(layout.LocationOf(rank).local, local);
    }
  }
}

TEST(RankLocationsTest, EveryLaneHasOneCarrierOnEachHost) {
  const RankLocations layout({2, 1, 3});
  EXPECT_EQ(layout.lanes(), 3);
  EXPECT_EQ(layout.LanesOf(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.LanesOf(1), (std::vector<int>{1}));
  EXPECT_EQ(layout.LanesOf(2), (std::vector<int>{0, 1, 2}));
  for (int rank = 0; rank < layout.size(); ++rank) {
    for (const int lane : layout.LanesOf(rank)) {
      EXPECT_EQ(layout.CarrierOf(lane, layout.LocationOf(rank).host), rank);
    }
  }
}

}  // namespace
}  // namespace ds::comm
