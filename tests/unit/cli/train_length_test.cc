// How long samples and warm-ups are, checked before anything is started.

#include <gtest/gtest.h>

#include "cli/train/train_inputs.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

class TrainLengthTest : public ::testing::Test {
 protected:
  TrainLengthTest() : share_(folder_.path() / "share") {
    Write("share/configs/default_ds_config.json", R"({"train_micro_batch_size_per_gpu": 2})");
    Write("share/configs/models/gpt2-demo.json", "{}");
    Write("share/demo_corpus.txt", "text");
    Write("data.txt", "words");
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_.path() / name).parent_path());
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }

  ds::testing::TemporaryFolder folder_;
  ShareFolder share_;
};

TEST_F(TrainLengthTest, SamplesHaveNoMoreTokensThanTheModelHasPositions) {
  Write("model/config.json", R"({"model_type": "llama", "max_position_embeddings": 64})");
  TrainFlags flags{.model = Path("model")};
  const auto error = [&] {
    const auto inputs = GatherTrainInputs(flags, share_, 2);
    return inputs.ok() ? "accepted" : inputs.status().message();
  };
  EXPECT_EQ(error(), "--model " + Path("model") +
                         ": a sequence of 256 tokens does not fit the model, which has 64 "
                         "positions; --seq_len 64 fits");
  flags.seq_len = 64;
  EXPECT_EQ(error(), "accepted");
}

// Of epochs the ranks find the number of steps, and with it that of the warm-up.
TEST_F(TrainLengthTest, AShareOfTheStepsThatWarmUpGoesToTheRanksUntilStepsAreGiven) {
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
  EXPECT_EQ(known->job.warmup_share, 0.0);
  EXPECT_EQ(known->resolved_config["scheduler"]["params"]["warmup_num_steps"], 10);
  const TrainFlags whole{.training = {.warmup_steps = 7.0}};
  const auto changed = OverrideTrainInputs(inputs->job, whole, share_, 1);
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(changed->job.warmup_share, 0.0);
}

}  // namespace
}  // namespace ds::cli
