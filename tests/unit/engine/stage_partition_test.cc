#include "runtime/plan/memory/stage_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/memory/job_memory.h"

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

TEST(StagePartitionTest, PartitionsBlocksAsConfigured) {
  const auto split = [](std::int64_t vocabulary, int stages, const std::string& partition) {
    return PartitionStages(MakeModel(vocabulary), MakeConfig(stages, partition)).value();
  };
  EXPECT_THAT(split(32, 2, "uniform"), ElementsAre(0, 4, 8));
  EXPECT_THAT(split(32, 2, "type:decoderlayer"), ElementsAre(0, 4, 8));
  EXPECT_THAT(split(32, 3, "type:decoderlayer"), ElementsAre(0, 3, 5, 8));
  // The table of tokens outweighs all layers.
  EXPECT_THAT(split(100'000, 3, "parameters"), ElementsAre(0, 1, 7, 8));
  EXPECT_EQ(split(100'000, 3, "best"), split(100'000, 3, "parameters"));
}

// A layer of these takes 4 x 16^2 products of attention, 3 x 16 x 64 of the MLP, and 16 x seq_len
// of scores and what they weigh; a head 16 x vocabulary, tied or not; a table none.
TEST(StagePartitionTest, WorkIsThatOfATokensProducts) {
  for (const bool tied : {false, true}) {
    models::DecoderSpec model = MakeModel(3000);
    model.tied_head = tied;
    const auto work = CountWork(model, 32).value();
    EXPECT_THAT(work, ElementsAre(0.0, 32 * 4608.0, 32 * 4608.0, 32 * 4608.0, 32 * 4608.0,
                                  32 * 4608.0, 32 * 4608.0, 32 * 48000.0));
  }
  models::DecoderSpec mixture = MakeModel(32);
  mixture.experts = 8;
  mixture.experts_per_token = 2;
  mixture.gated_mlp = true;
  mixture.expert_width = 64;
  // Two experts of three products, and a router of eight rows.
  EXPECT_EQ(CountWork(mixture, 1).value()[1], 4 * 256.0 + 16 + 2 * 3 * 16 * 64.0 + 8 * 16.0);
}

TEST(StagePartitionTest, AProfileBalancesWork) {
  models::DecoderSpec model = MakeModel(576);  // its head has the work of two layers
  const auto split = [&](const std::string& method, int stages) {
    return PartitionStages(model, MakeConfig(stages, method), {.seq_len = 32}).value();
  };
  EXPECT_THAT(split("profile", 2), ElementsAre(0, 5, 8));
  EXPECT_THAT(split("profile", 4), ElementsAre(0, 3, 5, 7, 8));
  EXPECT_THAT(split("parameters", 2), ElementsAre(0, 4, 8))
      << "the table weighs as much as the head";
}

// The first stage holds the activations of four micro-batches, and the last one's of one.
TEST(StagePartitionTest, MemoryBalancesStateAndActivationsOfTheSchedule) {
  const auto split = [](std::int64_t seq_len, pipeline::ScheduleKind kind) {
    config::DsConfig config = MakeConfig(4, "memory");
    config.batch = {.train_batch_size = 8,
                    .train_micro_batch_size_per_gpu = 1,
                    .gradient_accumulation_steps = 8};
    models::DecoderSpec model = MakeModel(32);
    model.layers = 18;
    return PartitionStages(model, config, {.kind = kind, .seq_len = seq_len}).value();
  };
  const auto of_1f1b = split(4096, pipeline::ScheduleKind::kOneForwardOneBackward);
  for (std::size_t stage = 0; stage + 2 < of_1f1b.size(); ++stage) {
    const int own = of_1f1b[stage + 1] - of_1f1b[stage];
    EXPECT_LE(own, of_1f1b[stage + 2] - of_1f1b[stage + 1]) << "stage " << stage;
  }
  EXPECT_LT(of_1f1b[1], 5) << "fewer blocks than a fourth";
  EXPECT_NE(of_1f1b, split(4096, pipeline::ScheduleKind::kGPipe))
      << "which holds as much everywhere";
}

TEST(StagePartitionTest, MemoryMatchesThePlan) {
  config::DsConfig config = MakeConfig(4, "memory");
  config.batch = {
      .train_batch_size = 8, .train_micro_batch_size_per_gpu = 1, .gradient_accumulation_steps = 8};
  JobShape job{.model = MakeModel(32), .seq_len = 2048, .setting = {.ranks = 4}};
  job.model.layers = 18;
  for (const std::int64_t adapters : {0, 2}) {
    if (adapters > 0) job.trained.lora = models::LoraSpec{.rank = adapters};
    config.pipeline.partition = "memory";
    const std::int64_t balanced = PlanJobMemory(config, job).peak.total();
    for (const char* method : {"uniform", "parameters"}) {
      config.pipeline.partition = method;
      EXPECT_LT(balanced, PlanJobMemory(config, job).peak.total()) << method << " " << adapters;
    }
  }
}

// A trained table is 16 bytes an element, a frozen one 4, or 1 a layer's weight that is in bytes.
TEST(StagePartitionTest, FrozenParametersHaveNoOptimizerState) {
  config::DsConfig config = MakeConfig(2, "memory");
  config.batch = {
      .train_batch_size = 2, .train_micro_batch_size_per_gpu = 1, .gradient_accumulation_steps = 2};
  const auto first_layers = [&](const models::TrainableParameters& trained,
                                std::int64_t seq_len = 32) {
    models::DecoderSpec model = MakeModel(3000);
    model.layers = 24;
    model.tied_head = true;
    return PartitionStages(model, config, {.seq_len = seq_len, .trained = trained}).value()[1];
  };
  const int all = first_layers({});
  EXPECT_GT(first_layers({.freeze = {"*embed_tokens*"}}), all) << "beside a table without state";
  const models::LoraSpec lora{.rank = 2};
  EXPECT_LT(first_layers({.lora = lora, .base = models::BaseFormat::kInt8}, 1),
            first_layers({.lora = lora}, 1))
      << "the table weighs more beside layers in bytes";
  EXPECT_THAT(PartitionStages(MakeModel(32), config, {.trained = {.freeze = {"nothing"}}})
                  .status()
                  .message(),
              HasSubstr("no parameter of the model matches nothing"));
}

TEST(StagePartitionTest, RefusesByTheKey) {
  const auto why = [](int stages, const std::string& partition) {
    return PartitionStages(MakeModel(32), MakeConfig(stages, partition)).status().message();
  };
  EXPECT_THAT(why(9, "uniform"), HasSubstr("pipeline.partition: a model of 8 blocks cannot be"));
  EXPECT_THAT(why(2, "type:conv"), HasSubstr("matches none of the model's blocks"));
  EXPECT_THAT(why(2, "types"), HasSubstr("is no way of cutting a pipeline"));
  EXPECT_THAT(why(9, "memory"), HasSubstr("pipeline.partition: a model of 8 blocks cannot be"));
}

TEST(StagePartitionTest, MoreStagesThanBlocksHaveNoPlanOfMemory) {
  const JobShape job{.model = MakeModel(32), .seq_len = 8, .setting = {.ranks = 9}};
  EXPECT_THAT(CheckMemoryIsKnown(MakeConfig(9, "uniform"), job).message(),
              HasSubstr("pipeline.partition: a model of 8 blocks cannot be"));
}

TEST(StagePartitionTest, ChunksThatAScheduleHasNotHaveNoPlanOfMemory) {
  const JobShape job{.model = MakeModel(32),
                     .seq_len = 8,
                     .schedule = pipeline::ScheduleKind::kZeroBubbleV,
                     .setting = {.ranks = 2}};
  EXPECT_EQ(CheckMemoryIsKnown(MakeConfig(2, "uniform"), job).message(),
            "a zb-v schedule has 2 chunks a stage, not 1");
}

TEST(StagePartitionTest, AnOrdersVirtualStagesSuitStagesAndMicroBatches) {
  config::DsConfig config = MakeConfig(2, "uniform");
  config.batch.gradient_accumulation_steps = 4;
  const auto of_job = [](const char* schedule, std::int64_t wanted) {
    return config::TrainJob{.pipeline_schedule = schedule, .pipeline_virtual_stages = wanted};
  };
  const auto chunks = [&](const char* schedule, std::int64_t wanted) {
    return ParseStageOrder(of_job(schedule, wanted), config).value().chunks;
  };
  EXPECT_EQ(chunks("1f1b", 0), 1);
  EXPECT_EQ(chunks("interleaved", 0), 2);
  EXPECT_EQ(chunks("interleaved", 4), 4);
  EXPECT_THAT(PartitionStages(MakeModel(32), config, {.chunks = 4}).value(),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  const auto why = [&](const char* schedule, std::int64_t wanted) {
    return ParseStageOrder(of_job(schedule, wanted), config).status().message();
  };
  EXPECT_THAT(why("interleaved", 1), HasSubstr("--pp_schedule: an interleaved schedule has 2"));
  EXPECT_THAT(why("1f1b", 3), HasSubstr("a 1f1b schedule has 1 chunk a stage, not 3"));
  EXPECT_THAT(why("dualpipe", 0), HasSubstr("no schedule of a pipeline"));
  config.batch.gradient_accumulation_steps = 3;
  EXPECT_THAT(why("interleaved", 2), HasSubstr("a multiple of 2 micro-batches (as 4), not 3"));
}

}  // namespace
}  // namespace ds::engine
