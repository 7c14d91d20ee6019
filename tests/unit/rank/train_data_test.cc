#include "runtime/rank/train_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/rank_harness.h"

namespace ds::rank {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string ErrorOf(const config::TrainJob& job, std::int64_t samples) {
  const auto steps = CountSteps(job, samples, /*batch=*/4);
  return steps.ok() ? std::to_string(*steps) + " steps" : steps.status().message();
}

TEST(CountSteps, TakesTheJobsStepsOrThoseOfItsEpochs) {
  EXPECT_EQ(CountSteps({.steps = 7, .epochs = 3}, 100, 4).value(), 7);
  EXPECT_EQ(CountSteps({.epochs = 2}, 6, 4).value(), 3);
  EXPECT_EQ(CountSteps({.epochs = 1}, 6, 4).value(), 2) << "the last one takes from the start";
}

// Places of the data are numbered up to the last step's.
TEST(CountSteps, RefusesMoreSamplesThanANumberHas) {
  EXPECT_THAT(ErrorOf({.steps = kMost}, 8), HasSubstr("--steps 9223372036854775807 of 4 samples"));
  EXPECT_EQ(ErrorOf({.steps = kMost / 4}, 8), std::to_string(kMost / 4) + " steps");
  EXPECT_THAT(ErrorOf({.epochs = kMost}, 8),
              HasSubstr("--epochs 9223372036854775807 of 8 samples"));
  EXPECT_THAT(ErrorOf({.epochs = kMost}, 1), HasSubstr("more than can be counted"));
}

// Of two hosts with copies of their own one may have another version.
TEST(CheckSameData, NamesTheRankThatHasOtherDataOnAllRanks) {
  const nlohmann::json state = {{"samples_per_epoch", 9}, {"tokens_crc32c", 5}};
  testing::RunRanks(3, [&](comm::Communicator& world) {
    EXPECT_TRUE(CheckSameData(state, world).ok());
    nlohmann::json own = state;
    if (world.rank() == 2) own["tokens_crc32c"] = 6;
    EXPECT_EQ(CheckSameData(own, world).message(),
              "rank 2: its data differs from rank 0: tokens_crc32c is 6 here and 5 there; all "
              "hosts need the same files");
  });
  testing::RunRanks(
      1, [&](comm::Communicator& world) { EXPECT_TRUE(CheckSameData(state, world).ok()); });
}

}  // namespace
}  // namespace ds::rank
