#include "runtime/comm/net/rank_places.h"

#include <gtest/gtest.h>

namespace ds::comm {
namespace {

TEST(RankPlacesTest, RanksAreNumberedHostByHost) {
  const RankPlaces places({2, 1, 3});
  EXPECT_EQ(places.size(), 6);
  EXPECT_EQ(places.hosts(), 3);
  for (int host = 0, rank = 0; host < 3; ++host) {
    for (int local = 0; local < places.count_on(host); ++local, ++rank) {
      EXPECT_EQ(places.PlaceOf(rank).host, host);
      EXPECT_EQ(places.PlaceOf(rank).local, local);
    }
  }
}

TEST(RankPlacesTest, EveryLaneHasOneCarrierOnEachHost) {
  const RankPlaces places({2, 1, 3});
  EXPECT_EQ(places.lanes(), 3);
  EXPECT_EQ(places.LanesOf(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(places.LanesOf(1), (std::vector<int>{1}));
  EXPECT_EQ(places.LanesOf(2), (std::vector<int>{0, 1, 2}));
  for (int rank = 0; rank < places.size(); ++rank) {
    for (const int lane : places.LanesOf(rank)) {
      EXPECT_EQ(places.CarrierOf(lane, places.PlaceOf(rank).host), rank);
    }
  }
}

}  // namespace
}  // namespace ds::comm
