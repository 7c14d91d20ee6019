// Evaluation, the best model, and checkpoints of a training on text, with the real programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/train_data_fixture.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(TrainDataTest, LossAndPerplexityOfOtherDataAreReported) {
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto result =
      Train("run", data, {"--eval_data", Write("other.jsonl", Chats(9)), "--eval_every", "2"});
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(
      result.out,
      ContainsRegex("eval loss [0-9.]+ .perplexity [0-9.]+, accuracy [0-9.]+ %. at step 4\n"));
  const auto steps = Steps("run");
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_FALSE(steps[0].contains("eval_loss"));
  const auto loss = steps[1].at("eval_loss").get<double>();
  EXPECT_GT(loss, steps[3].at("eval_loss").get<double>());
  EXPECT_NEAR(steps[1].at("eval_perplexity").get<double>(), std::exp(loss), 1e-9);
  EXPECT_GT(steps[3].at("eval_accuracy").get<double>(), 0.0);
  EXPECT_GT(steps[3].at("eval_tokens").get<int>(), 9);
  // A part of the data itself; the training takes no notice of being looked at.
  ASSERT_EQ(Train("split", data, {"--eval_split", "0.2"}).status, 0);
  ASSERT_EQ(Train("looked", data, {"--eval_split", "0.2", "--eval_every", "1"}).status, 0);
  EXPECT_EQ(Column(Steps("split"), "loss"), Column(Steps("looked"), "loss"));
}

TEST_F(TrainDataTest, NamesUnusableEvaluationDataBeforeTraining) {
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto outside =
      Train("outside", data, {"--eval_data", Write("a.bin", std::string(130, '~'))});
  EXPECT_EQ(outside.status, 2);
  EXPECT_THAT(outside.err, HasSubstr("the data to evaluate on: "));
  EXPECT_THAT(outside.err, HasSubstr("token id 32382 is outside the model's vocabulary"));
  EXPECT_FALSE(fs::exists(folder_.path() / "outside" / "metrics.jsonl"));
  const std::string without_loss = R"({"messages": [{"role": "model", "content": "x"}]})";
  const auto silent = Train("silent", data, {"--eval_data", Write("b.jsonl", without_loss)});
  EXPECT_EQ(silent.status, 2);
  EXPECT_THAT(silent.err,
              HasSubstr("the data to evaluate on: the data contains no tokens that contribute"));
  // The last sample of --data, which is held out, has a prompt alone.
  const std::string asked = R"({"messages": [{"role": "user", "content": "x"}]})";
  const auto none = Train("none", Write("c.jsonl", Chats(8) + asked),
                          {"--eval_split", "0.01", "--packing", "none"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("the evaluation data has no token to learn"));
}

// At a rate of 0 no evaluation is better than the first.
TEST_F(TrainDataTest, KeepsTheBestEvaluationAndStopsEarly) {
  const std::string data = Write("chat.jsonl", Chats(40));
  Write("ds.json", R"({"train_batch_size": 4,
                       "optimizer": {"type": "AdamW", "params": {"lr": 0.0}}})");
  const std::vector<std::string> flags = {
      "--eval_split",    "0.2", "--eval_every", "1", "--save_best",
      "--eval_patience", "2",   "--steps",      "9"};
  const auto run = Train("run", data, flags);
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_THAT(
      run.err,
      HasSubstr("training ends at step 3 of 9: evaluations in a row without a lower loss: 2"));
  EXPECT_THAT(
      run.err,
      ContainsRegex("the best evaluation was at step 1, loss [0-9.]+: its checkpoint is step-1"));
  EXPECT_TRUE(fs::exists(folder_.path() / "run/checkpoints/step-1/manifest.json"));
  EXPECT_EQ(Steps("run").size(), 3u);
  // A resumed run goes on from there, and knows how long it has been waiting.
  const auto resumed = RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "resume",
                                   (folder_.path() / "run").string(), "--eval_patience", "1"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("training ends at step 2 of 9: "));
}

// The rate rises until the loss does.
TEST_F(TrainDataTest, TheBestModelIsWrittenAndOldCheckpointsGo) {
  const std::string data = Write("chat.jsonl", Chats(40));
  Write("ds.json", R"({"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.001, "warmup_max_lr": 4.0,
                    "warmup_num_steps": 4, "warmup_type": "linear"}}})");
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--eval_split", "0.2", "--eval_every", "1", "--save_every", "1",
                             "--save_total_limit", "2", "--save_hf",
                             (folder_.path() / (name + "_model")).string()});
    return Train(name, data, more);
  };
  const auto run = train("run", {"--steps", "5", "--load_best_model_at_end"});
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  std::string best;
  for (const char digit : {'1', '2', '3', '4'}) {
    const std::string step = std::string("the best evaluation was at step ") + digit + ",";
    if (run.err.find(step) != std::string::npos) best = digit;
  }
  ASSERT_NE(best, "") << run.err;
  std::vector<std::string> kept;
  for (const auto& entry : fs::directory_iterator(folder_.path() / "run/checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) kept.push_back(name);
  }
  EXPECT_THAT(kept, UnorderedElementsAre("step-" + best, "step-5"));
  const auto until_best = train("until_best", {"--steps", best});
  ASSERT_EQ(until_best.status, 0) << until_best.out << until_best.err;
  const auto model = [&](const std::string& name) {
    return *ReadFile(folder_.path() / (name + "_model") / "model.safetensors");
  };
  EXPECT_TRUE(model("run") == model("until_best"));
}

TEST_F(TrainDataTest, ATrainingThatHasHadItsTimeEndsWithACheckpoint) {
  const auto run =
      Train("run", Write("chat.jsonl", Chats(40)), {"--max_minutes", "0.000001", "--steps", "50"});
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_THAT(
      run.err,
      HasSubstr("training ends at step 1 of 50: its time limit (--max_minutes) is reached"));
  EXPECT_TRUE(fs::exists(folder_.path() / "run/checkpoints/step-1/manifest.json"));
  EXPECT_EQ(Steps("run").size(), 1u);
}

}  // namespace
}  // namespace ds::testing
