#include "runtime/engine/plan/job_memory.h"

#include <gtest/gtest.h>

namespace ds::engine {
namespace {

constexpr models::DecoderShape kModel{.vocabulary = 2000,
                                      .width = 128,
                                      .layers = 4,
                                      .heads = 4,
                                      .kv_heads = 4,
                                      .head_width = 32,
                                      .mlp_width = 512,
                                      .layer_norms = true,
                                      .tied_head = true};

JobShape MakeJob(int ranks) {
  return {.model = kModel, .seq_len = 64, .setting = {.ranks = ranks}};
}

config::DsConfig MakeConfig(int stage, std::int64_t micro_batch = 1) {
  config::DsConfig config;
  config.zero_optimization.stage = stage;
  config.batch.train_micro_batch_size_per_gpu = micro_batch;
  return config;
}

TEST(JobMemoryTest, HigherStagesHoldLess) {
  std::int64_t before = PlanJobMemory(MakeConfig(1), MakeJob(8)).peak.total();
  for (const int stage : {2, 3}) {
    const std::int64_t peak = PlanJobMemory(MakeConfig(stage), MakeJob(8)).peak.total();
    EXPECT_LT(peak, before) << stage;
    before = peak;
  }
}

TEST(JobMemoryTest, ActivationsGrowWithTheMicroBatch) {
  const zero::StepMemory one = PlanJobMemory(MakeConfig(2, 4), MakeJob(2));
  const zero::StepMemory two = PlanJobMemory(MakeConfig(2, 8), MakeJob(2));
  EXPECT_GT(two.peak_activations, one.peak_activations * 3 / 2);
  JobShape job = MakeJob(2);
  job.recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
  EXPECT_LT(PlanJobMemory(MakeConfig(2, 8), job).peak_activations, two.peak_activations);
}

TEST(JobMemoryTest, TheLargestMicroBatchFitsAndOneMoreDoesNot) {
  const JobShape job = MakeJob(2);
  const auto peak = [&](std::int64_t samples) {
    return PlanJobMemory(MakeConfig(2, samples), job).peak.total();
  };
  const std::int64_t largest = FindLargestMicroBatch(MakeConfig(2), job, 200 << 20);
  EXPECT_GT(largest, 1);
  EXPECT_LE(peak(largest), 200 << 20);
  EXPECT_GT(peak(largest + 1), 200 << 20);
  EXPECT_EQ(FindLargestMicroBatch(MakeConfig(2), job, 1 << 20), 0);
}

}  // namespace
}  // namespace ds::engine
