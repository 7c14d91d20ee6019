#include "runtime/config/recompute_choice.h"

#include <gmock/gmock.h>

#include <vector>

#include "runtime/config/ds_config.h"

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

TEST(RecomputeChoiceTest, TheConfigDecidesWhereNoFlagDoes) {
  DsConfig config;
  const auto decide = [&](std::string_view text) {
    return DecideRecompute(ParseRecompute(text).value(), config);
  };
  EXPECT_EQ(decide("auto").kind, Kind::kNone);
  config.pipeline.activation_checkpoint_interval = 1;
  EXPECT_EQ(decide("auto").kind, Kind::kNone) << "there are no stages";
  config.parallel.pipeline = 2;
  EXPECT_EQ(decide("auto"), RecomputeChoice{.kind = Kind::kBlocks});
  config.pipeline.activation_checkpoint_interval = 0;
  config.activation_checkpointing.asked_for = true;
  EXPECT_EQ(decide("auto"), RecomputeChoice{.kind = Kind::kBlocks});
  EXPECT_EQ(decide("none").kind, Kind::kNone) << "a flag rules";
  EXPECT_EQ(decide("attention").kind, Kind::kAttention);
  EXPECT_EQ(decide("every:3"), (RecomputeChoice{.kind = Kind::kBlocks, .every = 3}));
}

TEST(RecomputeChoiceTest, ABufferHasAPartForEachLayer) {
  EXPECT_TRUE(CheckBufferedPartitions(8, 8).ok());
  EXPECT_TRUE(CheckBufferedPartitions(9, 8).ok());
  EXPECT_THAT(
      CheckBufferedPartitions(4, 8).message(),
      HasSubstr("number_checkpoints is 4, and a rank recomputes 8 layers in a pass: write 8 "
                "or more, or leave out contiguous_memory_optimization"));
}

TEST(RecomputeChoiceTest, RefusesTheRest) {
  for (const char* const text : {"", "all", "every", "every:", "every:0", "every:-1", "every:x",
                                 "every:2 ", "every:99999999999", "Full"}) {
    EXPECT_THAT(ParseRecompute(text).status().message(), HasSubstr("none of none, full")) << text;
  }
}

}  // namespace
}  // namespace ds::config
