// What is trained of a model, and where its state lies, goes with stages of a pipeline: adapters
// beside frozen weights train to what one rank trains, and state in files to the bits of state in
// memory.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/ranks/decoder_run.h"
#include "tests/support/program.h"

namespace ds::tests {
namespace {

using pipeline::ScheduleKind;

struct StageShape {
  int pipeline, ranks, zero;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1, tensor = 1;
};

DecoderRun SplitBy(const StageShape& split, DecoderRun run) {
  run.pipeline = split.pipeline;
  run.stage = split.zero;
  run.schedule = split.schedule;
  run.chunks = split.chunks;
  run.tensor = split.tensor;
  return run;
}

// Of four stages the first has the table alone, in which nothing is trained, and the last the head.
TEST(StagesCompose, AdaptersMatchOneRank) {
  const StageShape splits[] = {{2, 2, 0},
                               {2, 4, 1},
                               {2, 4, 2},
                               {2, 4, 3},
                               {4, 4, 3},
                               {2, 4, 3, ScheduleKind::kInterleaved, 2},
                               {2, 2, 1, ScheduleKind::kZeroBubbleH1},
                               {2, 4, 3, ScheduleKind::kZeroBubbleV, 2},
                               {2, 4, 2, ScheduleKind::kGPipe, 1, 2}};
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const DecoderRun one{.model = model, .accumulation = 4, .lora_rank = 3};
    const DecoderOutcome alone = RunDecoder(one, 1, kTrainedSteps);
    for (const StageShape& split : splits) {
      SCOPED_TRACE(fmt::format("{} pp {} tp {} of {} ranks, ZeRO {}, {}", model, split.pipeline,
                               split.tensor, split.ranks, split.zero, NameOf(split.schedule)));
      const DecoderOutcome ours = RunDecoder(SplitBy(split, one), split.ranks, kTrainedSteps);
      ExpectSameSteps(alone.steps, ours.steps);
      ExpectSameParameters(alone, ours);
    }
  }
}

// Sub-groups, which are as long in both, are what a norm's sum is made of.
TEST(StagesCompose, StateInFilesTrainsWithTheBitsOfStateInMemory) {
  const StageShape splits[] = {{2, 4, 3},
                               {2, 4, 3, ScheduleKind::kGPipe},
                               {2, 4, 3, ScheduleKind::kInterleaved, 2},
                               {2, 4, 3, ScheduleKind::kZeroBubbleH1},
                               {2, 4, 3, ScheduleKind::kZeroBubbleV, 2}};
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    for (const StageShape& split : splits) {
      for (const bool bf16 : {false, true}) {
        SCOPED_TRACE(fmt::format("{} pp {} of {} ranks, {}{}", model, split.pipeline, split.ranks,
                                 NameOf(split.schedule), bf16 ? ", bf16" : ""));
        const DecoderRun run = SplitBy(
            split, {.model = model, .accumulation = 4, .bf16 = bf16, .sub_group_size = 2048});
        const DecoderOutcome in_memory = RunDecoder(run, split.ranks, kTrainedSteps);
        const testing::TemporaryFolder folder;
        DecoderRun state = run;
        state.optimizer_folder = folder.path().string();
        ExpectSameBits(in_memory, RunDecoder(state, split.ranks, kTrainedSteps));
        DecoderRun all = state;
        all.parameter_folder = folder.path().string();
        ExpectSameBits(in_memory, RunDecoder(all, split.ranks, kTrainedSteps));
        EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
      }
    }
  }
}

// A shard that is a whole gradient is summed in another order for its norm.
TEST(StagesCompose, StagesOfOneRankHaveTheirStateInFiles) {
  for (const char* model : {kDroppingDecoder, kLlamaDecoder}) {
    const DecoderRun run = SplitBy({2, 2, 3}, {.model = model, .accumulation = 4});
    const DecoderOutcome in_memory = RunDecoder(run, 2, kTrainedSteps);
    const testing::TemporaryFolder folder;
    DecoderRun in_files = run;
    in_files.optimizer_folder = in_files.parameter_folder = folder.path().string();
    const DecoderOutcome ours = RunDecoder(in_files, 2, kTrainedSteps);
    ExpectSameSteps(in_memory.steps, ours.steps);
    ExpectSameParameters(in_memory, ours);
  }
}

TEST(StagesCompose, EveryStageOfZeroOffloadsItsOptimizer) {
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    const DecoderRun run = SplitBy({2, 4, zero}, {.model = kDroppingDecoder, .accumulation = 4});
    const DecoderOutcome in_memory = RunDecoder(run, 4, kTrainedSteps);
    DecoderRun to_host = run;
    to_host.offloads_optimizer = true;
    ExpectSameBits(in_memory, RunDecoder(to_host, 4, kTrainedSteps));
  }
}

TEST(StagesCompose, CheckpointsOfOffloadedStagesResumeOnOneRank) {
  const testing::TemporaryFolder folder;
  const DecoderRun alone{.model = kLlamaDecoder, .accumulation = 2};
  DecoderRun stages = SplitBy({2, 4, 3}, alone);
  stages.optimizer_folder = stages.parameter_folder = folder.path().string();
  auto through = RunDecoder(alone, 1, 4).steps;
  through.erase(through.begin(), through.begin() + 2);
  ExpectSameSteps(through, GoOnFromCheckpoint(stages, 4, alone, 1));
  ExpectSameSteps(through, GoOnFromCheckpoint(alone, 1, stages, 4));
}

}  // namespace
}  // namespace ds::tests
