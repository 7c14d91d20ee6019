// How long samples and warm-ups are, checked before anything is started.

#include <gtest/gtest.h>

#include "cli/train/train_inputs.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using TrainLengthTest = TrainFolderTest;

TEST_F(TrainLengthTest, SamplesHaveNoMoreTokensThanTheModelHasPositions) {
  Write("model/config.json", R"({"model_type": "llama", "max_position_embeddings": 64})");
  TrainFlags flags{.model = Path("model")};
  EXPECT_EQ(Error(flags), "--model " + Path("model") +
                              ": a sequence of 256 tokens does not fit the model, which has 64 "
                              "positions; --seq_len 64 fits");
  flags.seq_len = 64;
  EXPECT_EQ(Error(flags), "accepted");
}

// Of epochs the ranks find the number of steps, and with it that of the warm-up.
TEST_F(TrainLengthTest, AShareOfTheStepsThatWarmUpStaysWithTheJob) {
  Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "scheduler": {"type": "WarmupLR"}})");
  const TrainFlags first{.data = {Path("data.txt")},
                         .deepspeed_config = Path("ds.json"),
                         .epochs = 3,
                         .training = {.warmup_steps = 0.25}};
  const auto inputs = GatherTrainInputs(first, share_, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->job.warmup_share, 0.25);
  const auto kept = OverrideTrainInputs(inputs->job, {}, share_, 1);
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ(kept->job.warmup_share, 0.25);
  const auto known = OverrideTrainInputs(inputs->job, {.steps = 40}, share_, 1);
  ASSERT_TRUE(known.ok()) << known.status().message();
  EXPECT_EQ(known->job.warmup_share, 0.25) << "a run of more steps warms up longer";
  EXPECT_EQ(known->resolved_config["scheduler"]["params"]["warmup_num_steps"], 10);
  const TrainFlags whole{.training = {.warmup_steps = 7.0}};
  const auto changed = OverrideTrainInputs(inputs->job, whole, share_, 1);
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(changed->job.warmup_share, 0.0);
}

}  // namespace
}  // namespace ds::cli
