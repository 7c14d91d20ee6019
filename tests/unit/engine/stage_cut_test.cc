#include "runtime/engine/plan/stage_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/engine/plan/job_memory.h"

namespace ds::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

models::DecoderSpec MakeModel(std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .width = 16,
          .layers = 6,
          .heads = 4,
          .kv_heads = 4,
          .head_width = 4,
          .mlp_width = 64};
}

config::DsConfig MakeConfig(int stages, const std::string& partition) {
  config::DsConfig config;
  config.parallel.pipeline = stages;
  config.pipeline.partition = partition;
  return config;
}

TEST(StageCutTest, BlocksAreCutAsTheConfigSays) {
  const auto cut = [](std::int64_t vocabulary, int stages, const std::string& partition) {
    return CutStages(MakeModel(vocabulary), MakeConfig(stages, partition)).value();
  };
  EXPECT_THAT(cut(32, 2, "uniform"), ElementsAre(0, 4, 8));
  EXPECT_THAT(cut(32, 2, "type:decoderlayer"), ElementsAre(0, 4, 8));
  EXPECT_THAT(cut(32, 3, "type:decoderlayer"), ElementsAre(0, 3, 5, 8));
  // The table of tokens outweighs all layers.
  EXPECT_THAT(cut(100'000, 3, "parameters"), ElementsAre(0, 1, 7, 8));
  EXPECT_EQ(cut(100'000, 3, "best"), cut(100'000, 3, "parameters"));
}

TEST(StageCutTest, RefusesByTheKey) {
  const auto why = [](int stages, const std::string& partition) {
    return CutStages(MakeModel(32), MakeConfig(stages, partition)).status().message();
  };
  EXPECT_THAT(why(9, "uniform"), HasSubstr("pipeline.partition: a model of 8 blocks cannot be"));
  EXPECT_THAT(why(2, "type:conv"), HasSubstr("finds none of the model's blocks"));
  EXPECT_THAT(why(2, "profile"), HasSubstr("is no way of cutting a pipeline"));
}

TEST(StageCutTest, MoreStagesThanBlocksHaveNoPlanOfMemory) {
  const JobShape job{.model = MakeModel(32), .seq_len = 8, .setting = {.ranks = 9}};
  EXPECT_THAT(CheckMemoryIsKnown(MakeConfig(9, "uniform"), job).message(),
              HasSubstr("pipeline.partition: a model of 8 blocks cannot be"));
}

TEST(StageCutTest, ChunksThatAScheduleHasNotHaveNoPlanOfMemory) {
  const JobShape job{.model = MakeModel(32),
                     .seq_len = 8,
                     .schedule = pipeline::ScheduleKind::kZeroBubbleV,
                     .setting = {.ranks = 2}};
  EXPECT_EQ(CheckMemoryIsKnown(MakeConfig(2, "uniform"), job).message(),
            "a zb-v schedule has 2 chunks a stage, not 1");
}

TEST(StageCutTest, AnOrdersVirtualStagesSuitStagesAndMicroBatches) {
  config::DsConfig config = MakeConfig(2, "uniform");
  config.batch.gradient_accumulation_steps = 4;
  const auto chunks = [&](const char* schedule, std::int64_t wanted) {
    return ParseStageOrder(schedule, wanted, config).value().chunks;
  };
  EXPECT_EQ(chunks("1f1b", 0), 1);
  EXPECT_EQ(chunks("interleaved", 0), 2);
  EXPECT_EQ(chunks("interleaved", 4), 4);
  EXPECT_THAT(CutStages(MakeModel(32), config, 4).value(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  const auto why = [&](const char* schedule, std::int64_t wanted) {
    return ParseStageOrder(schedule, wanted, config).status().message();
  };
  EXPECT_THAT(why("interleaved", 1), HasSubstr("--pp_schedule: an interleaved schedule has 2"));
  EXPECT_THAT(why("1f1b", 3), HasSubstr("a 1f1b schedule has 1 chunk a stage, not 3"));
  EXPECT_THAT(why("dualpipe", 0), HasSubstr("no schedule of a pipeline"));
  config.batch.gradient_accumulation_steps = 3;
  EXPECT_THAT(why("interleaved", 2), HasSubstr("a multiple of 2 micro-batches (as 4), not 3"));
}

}  // namespace
}  // namespace ds::engine
