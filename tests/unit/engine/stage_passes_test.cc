// What stages go through, and what jobs hold whose parts or samples are special.

#include "runtime/plan/memory/stage_passes.h"

#include <gtest/gtest.h>

#include "runtime/plan/memory/job_memory.h"
#include "tests/unit/engine/small_decoder.h"

namespace ds::engine {
namespace {

using pipeline::ScheduleKind;
using zero::Pass;

std::vector<Pass> ListOf(ScheduleKind kind, int chunks, int stage) {
  const auto schedule =
      pipeline::PipelineSchedule::Create(kind, {.stages = 2, .chunks = chunks, .micro_batches = 4});
  std::vector<zero::UnitRange> units;
  for (int chunk = 0; chunk < chunks; ++chunk) units.push_back({2 * chunk, 2 * chunk + 2});
  return ListPasses(*schedule, stage, units);
}

TEST(StagePasses, OneChunkGoesThroughAllUnits) {
  for (const Pass& pass : ListOf(ScheduleKind::kOneForwardOneBackward, 1, 0)) {
    EXPECT_FALSE(pass.units.has_value());
    EXPECT_TRUE(pass.begins && pass.sends);
    EXPECT_FALSE(pass.returns || pass.hands_back || pass.was_handed);
  }
}

TEST(StagePasses, InterleavedChunksSendEverythingToTheOtherStage) {
  for (const Pass& pass : ListOf(ScheduleKind::kInterleaved, 2, 0)) {
    EXPECT_EQ(pass.begins, pass.units->first == 0);
    EXPECT_TRUE(pass.sends) << "the last virtual stage is the other's";
    EXPECT_EQ(pass.returns, pass.units->first == 2);
    EXPECT_FALSE(pass.hands_back || pass.was_handed);
  }
}

// The second stage has the two in the middle of a V.
TEST(StagePasses, TheTurningPointOfAVStaysOnItsStage) {
  int weights = 0;
  for (const Pass& pass : ListOf(ScheduleKind::kZeroBubbleV, 2, 1)) {
    const bool is_first = pass.units->first == 0;
    EXPECT_EQ(pass.was_handed, is_first);
    EXPECT_EQ(pass.hands_back, !is_first);
    EXPECT_EQ(pass.sends, !is_first);
    EXPECT_EQ(pass.returns, is_first);
    weights += pass.kind == Pass::Kind::kWeightGradient ? 1 : 0;
  }
  EXPECT_EQ(weights, 2 * 4);
}

TEST(StagePasses, OfManyMicroBatchesAFewArePlanned) {
  constexpr auto k1F1B = ScheduleKind::kOneForwardOneBackward;
  EXPECT_EQ(CountPlannedMicroBatches(k1F1B, 4, 3), 3);
  EXPECT_EQ(CountPlannedMicroBatches(ScheduleKind::kInterleaved, 4, 1'000'000'000), 16);
  EXPECT_NE(CountPlannedMicroBatches(ScheduleKind::kInterleaved, 4, 1'000'000'001) % 4, 0)
      << "what the schedule refuses stays refused";
  EXPECT_EQ(CountPlannedMicroBatches(ScheduleKind::kGPipe, 4, 1000), 1000);
}

TEST(BufferedParts, AllOfTheBufferIsThereFromTheFirstOn) {
  std::vector<zero::BlockActivations> blocks(4, {.saved = 10, .forward = 20, .backward = 30});
  BufferPartitions({.count = 3, .part_bytes = 10}, {false, true, true, false}, &blocks);
  EXPECT_EQ(blocks[0].saved, 10);
  EXPECT_EQ(blocks[1].saved, 30);
  EXPECT_EQ(blocks[1].forward, 40);
  EXPECT_EQ(blocks[1].backward, 50);
  EXPECT_EQ(blocks[2].saved, 0);
  EXPECT_EQ(blocks[2].backward, 20);
  EXPECT_EQ(blocks[3].saved, 10);
}

models::DecoderSpec MakeEightLayers() { return MakeSmallDecoder(8); }

zero::StepMemory PlanOf(const JobShape& job, const config::DsConfig& config) {
  const Status known = CheckMemoryIsKnown(config, job);
  EXPECT_TRUE(known.ok()) << known.message();
  return PlanJobMemory(config, job);
}

TEST(JobMemoryOfParts, AQuantizedBaseHoldsItsBytes) {
  config::DsConfig config;
  config.bf16.enabled = true;
  JobShape job{.model = MakeEightLayers(), .seq_len = 64, .setting = {.ranks = 1}};
  job.trained.lora = models::LoraSpec{.rank = 4};
  const std::int64_t plain = PlanOf(job, config).between_steps.parameters;
  constexpr std::int64_t kWeights = 8 * (4 * 128 * 128 + 2 * 128 * 512);
  job.trained.base = models::BaseFormat::kInt8;
  const std::int64_t bytes = PlanOf(job, config).between_steps.parameters;
  EXPECT_NEAR(static_cast<double>(plain - bytes), kWeights, 0.05 * kWeights);
  job.trained.base = models::BaseFormat::kNf4;
  const std::int64_t halves = PlanOf(job, config).between_steps.parameters;
  EXPECT_NEAR(static_cast<double>(plain - halves), 1.5 * kWeights, 0.1 * kWeights);
}

TEST(JobMemoryOfParts, MagnitudesKeepTheirFactors) {
  JobShape job{.model = MakeEightLayers(), .seq_len = 64, .setting = {.ranks = 1}};
  job.trained.lora = models::LoraSpec{.rank = 4};
  const std::int64_t plain = PlanOf(job, {}).peak_activations;
  job.trained.lora->magnitudes = true;
  EXPECT_GT(PlanOf(job, {}).peak_activations, plain + 7 * 64 * 4 * (5 * 128 + 512));
}

TEST(JobMemoryOfParts, TheFirstStepOfACurriculumHoldsLess) {
  JobShape job{.model = MakeEightLayers(), .seq_len = 64, .setting = {.ranks = 1}};
  const zero::StepMemory all = PlanOf(job, {});
  job.efficiency.curriculum = config::CurriculumConfig{.min_difficulty = 16,
                                                       .max_difficulty = 64,
                                                       .total_curriculum_step = 100,
                                                       .difficulty_step = 8};
  const zero::StepMemory growing = PlanOf(job, {});
  EXPECT_EQ(growing.peak, all.peak);
  EXPECT_LT(growing.first_step_peak, all.first_step_peak);
  job.efficiency.curriculum->max_difficulty = 32;
  EXPECT_LT(PlanOf(job, {}).peak_activations, all.peak_activations * 2 / 3);
}

TEST(JobMemoryOfParts, LayersThatDropTokensKeepLess) {
  JobShape job{.model = MakeEightLayers(), .seq_len = 512, .setting = {.ranks = 1}};
  const std::int64_t all = PlanOf(job, {}).peak_activations;
  job.efficiency.random_ltd = config::RandomLtdConfig{
      .total_layer_num = 8, .layers = {1, 2, 3, 4, 5, 6}, .min_value = 64, .max_value = 256};
  const zero::StepMemory dropping = PlanOf(job, {});
  EXPECT_LT(dropping.peak_activations, all * 3 / 4);
  EXPECT_LT(dropping.first_step_peak, dropping.peak.total());
}

TEST(JobMemoryOfParts, DoesNotPredictUnverifiedExperts) {
  JobShape job{.model = MakeEightLayers(), .seq_len = 64, .setting = {.ranks = 4}};
  job.model.experts = 4;
  job.model.experts_per_token = 2;
  config::DsConfig config;
  EXPECT_TRUE(CheckMemoryIsKnown(config, job).ok());
  config.parallel.tensor = 2;
  EXPECT_EQ(CheckMemoryIsKnown(config, job).message(),
            "the memory of experts that tensor ranks shard is not known");
  config.parallel.tensor = 1;
  job.mlp_tiles = 2;
  EXPECT_EQ(CheckMemoryIsKnown(config, job).message(),
            "the memory of experts in tiles is not known");
}

}  // namespace
}  // namespace ds::engine
