// What ranks tell one another: the same answer on every rank.

#include "runtime/comm/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/rank_harness.h"

namespace ds::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(AgreeOnStatus, IsOkWhenEveryRankIs) {
  testing::RunRanks(
      3, [](Communicator& world) { EXPECT_TRUE(AgreeOnStatus(OkStatus(), world).ok()); });
}

TEST(AgreeOnStatus, IsTheLowestFailingRanksOnEveryRank) {
  testing::RunRanks(4, [](Communicator& world) {
    const Status mine = world.rank() == 1   ? NotFoundError("no such tensor")
                        : world.rank() == 3 ? InternalError("something else")
                                            : OkStatus();
    const Status agreed = AgreeOnStatus(mine, world);
    EXPECT_EQ(agreed.code(), StatusCode::kNotFound);
    EXPECT_EQ(agreed.message(), "rank 1: no such tensor");
  });
}

TEST(AgreeOnStatus, IsARanksOwnWhereItIsAlone) {
  testing::RunRanks(1, [](Communicator& world) {
    EXPECT_EQ(AgreeOnStatus(NotFoundError("no such tensor"), world).message(), "no such tensor");
  });
}

// What they exchange looks alike: a number of each rank.
TEST(AgreeOnStatus, IsNotMixedWithAnotherAgreement) {
  testing::RunRanks(2, [](Communicator& world) {
    const auto agree = [&] {
      if (world.rank() == 0) static_cast<void>(AgreeOnStatus(OkStatus(), world));
      if (world.rank() == 1) GatherNumber(0, world);
    };
    EXPECT_THAT(agree, ThrowsMessage<c10::Error>(AllOf(HasSubstr("for the status"),
                                                       HasSubstr("for each rank's number"))));
  });
}

TEST(GatherNumbers, KeepsEveryBit) {
  const double not_a_number = std::bit_cast<double>(0x7ff80000deadbeefULL);
  testing::RunRanks(3, [&](Communicator& world) {
    const double mine = world.rank() == 1 ? not_a_number : 0.1 * world.rank();
    const auto ranks = GatherNumbers({mine, -0.0}, world);
    EXPECT_EQ(ranks.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      const double expected = rank == 1 ? not_a_number : 0.1 * rank;
      const std::vector<double>& row = ranks.at(static_cast<std::size_t>(rank));
      EXPECT_EQ(std::bit_cast<std::uint64_t>(row[0]), std::bit_cast<std::uint64_t>(expected));
      EXPECT_EQ(std::bit_cast<std::uint64_t>(row[1]), std::bit_cast<std::uint64_t>(-0.0));
    }
  });
}

TEST(SumOverRanks, IsExact) {
  testing::RunRanks(3, [](Communicator& world) {
    const std::int64_t large = std::numeric_limits<std::int64_t>::max() / 4;
    EXPECT_EQ(SumOverRanks(large + world.rank(), world), 3 * large + 3);
  });
}

TEST(GatherTexts, GivesRankZeroAllInOrder) {
  testing::RunRanks(3, [](Communicator& world) {
    const std::vector<std::string> texts = {"", "one", std::string("two\0bytes", 9)};
    const auto gathered = GatherTexts(texts[static_cast<std::size_t>(world.rank())], world);
    if (world.rank() == 0) {
      EXPECT_EQ(gathered, texts);
    } else {
      EXPECT_THAT(gathered, IsEmpty());
    }
  });
}

}  // namespace
}  // namespace ds::comm
