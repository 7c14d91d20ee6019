#include "runtime/comm/shm/region_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

namespace ds::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Outcome = StatusOr<SharedRegion>;

// A name of its own for every test of every process.
Rendezvous MakeRendezvous(int rank, int size, milliseconds timeout = std::chrono::minutes(1)) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return {.name = "dsrun-test/" + std::to_string(getpid()) + "/" + test->name(),
          .self = {.rank = rank, .size = size},
          .timeout = timeout};
}

std::future<Outcome> Start(const Rendezvous& rendezvous, std::size_t bytes = 4096) {
  return std::async(std::launch::async,
                    [rendezvous, bytes] { return ExchangeRegion(rendezvous, bytes); });
}

TEST(RegionExchangeTest, AllRanksGetTheSameMemoryInAnyOrder) {
  for (const std::vector<int>& order : {std::vector{0, 1, 2, 3}, std::vector{3, 2, 1, 0}}) {
    std::vector<std::future<Outcome>> comers;
    for (const int rank : order) comers.push_back(Start(MakeRendezvous(rank, 4)));
    std::vector<Outcome> regions;
    for (auto& comer : comers) regions.push_back(comer.get());
    for (Outcome& region : regions) ASSERT_TRUE(region.ok()) << region.status().message();
    regions[0]->data()[7] = std::byte{42};
    for (Outcome& region : regions) {
      EXPECT_EQ(region->data()[7], std::byte{42});
      EXPECT_FALSE(region->fd().valid());
    }
  }
}

TEST(RegionExchangeTest, RankZeroNamesMissingRanks) {
  std::future<Outcome> present = Start(MakeRendezvous(2, 4, milliseconds(200)));
  const Status status = ExchangeRegion(MakeRendezvous(0, 4, milliseconds(50)), 4096).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  // On a busy machine the deadline may beat rank 2, too.
  const bool has_come = present.get().ok();
  EXPECT_THAT(status.message(),
              HasSubstr(has_come ? "rank 1, rank 3 did" : "rank 1, rank 2, rank 3 did"));
}

TEST(RegionExchangeTest, WithoutRankZeroTheOthersGiveUp) {
  const Status status = ExchangeRegion(MakeRendezvous(1, 2, milliseconds(20)), 4096).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 did not arrive"));
}

TEST(RegionExchangeTest, TwoProcessesWithOneRankAreRefused) {
  std::future<Outcome> first = Start(MakeRendezvous(1, 3));
  std::future<Outcome> second = Start(MakeRendezvous(1, 3));
  EXPECT_THAT(ExchangeRegion(MakeRendezvous(0, 3), 4096).status().message(),
              HasSubstr("two processes joined as rank 1"));
  const Outcome one = first.get();
  const Outcome other = second.get();
  EXPECT_NE(one.ok(), other.ok());
  EXPECT_THAT((one.ok() ? other : one).status().message(), HasSubstr("rank 0 ended or refused"));
}

TEST(RegionExchangeTest, RanksOfAnotherWorldSizeAreRefused) {
  std::future<Outcome> other = Start(MakeRendezvous(1, 2));
  EXPECT_THAT(ExchangeRegion(MakeRendezvous(0, 3), 4096).status().message(),
              HasSubstr("rank 1 of 2 into a group of 3"));
  EXPECT_FALSE(other.get().ok());
}

TEST(RegionExchangeTest, ASizeThatDiffersIsRefused) {
  std::future<Outcome> other = Start(MakeRendezvous(1, 2), 8192);
  EXPECT_TRUE(ExchangeRegion(MakeRendezvous(0, 2), 4096).ok());
  EXPECT_THAT(other.get().status().message(), HasSubstr("8192 are expected"));
}

TEST(RegionExchangeTest, ASecondRankZeroIsRefused) {
  std::future<Outcome> holder = Start(MakeRendezvous(0, 3));
  EXPECT_TRUE(ExchangeRegion(MakeRendezvous(1, 3), 4096).ok());  // so the holder listens
  EXPECT_THAT(ExchangeRegion(MakeRendezvous(0, 3), 4096).status().message(),
              HasSubstr("cannot listen"));
  EXPECT_TRUE(ExchangeRegion(MakeRendezvous(2, 3), 4096).ok());
  EXPECT_TRUE(holder.get().ok());
}

}  // namespace
}  // namespace ds::comm
