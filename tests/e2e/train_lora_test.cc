// Adapters with the real programs: trained, saved as PEFT saves them, taken up again, merged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBase[] = DS_SOURCE_DIR "/tests/numerics/goldens/llama";

class TrainLoraTest : public ::testing::Test {
 protected:
  // Trains on two ranks at stage 3, and evaluates on a part that is held out.
  ProgramResult Train(const std::string& run, const std::string& model, double lr,
                      std::vector<std::string> more) const {
    const nlohmann::json config = {
        {"train_batch_size", 8},
        {"zero_optimization", {{"stage", 3}}},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", lr}, {"weight_decay", 0.0}}}}}};
    const fs::path path = folder_.path() / (run + ".json");
    EXPECT_TRUE(WriteFileAtomically(path, config.dump()).ok());
    std::vector<std::string> arguments = {"--num_gpus",
                                          "2",
                                          "train",
                                          "--model",
                                          model,
                                          "--data",
                                          DS_SOURCE_DIR "/tests/numerics/goldens/tokens.bin",
                                          "--deepspeed_config",
                                          path.string(),
                                          "--seq_len",
                                          "32",
                                          "--eval_split",
                                          "0.2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(DsrunCommand(folder_.path() / run, arguments));
  }
  // The loss on what is held out, behind the last step.
  double EvaluatedLoss(const std::string& run) const {
    const auto steps = ReadJsonLines(folder_.path() / run / "metrics.jsonl");
    return steps.empty() ? 0.0 : steps.back().at("eval_loss").get<double>();
  }
  std::string Folder(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(TrainLoraTest, AdaptersAreSavedTakenUpAndMerged) {
  const std::vector<std::string> lora = {"--lora_rank", "4", "--lora_targets", "q_proj", "v_proj",
                                         "--steps",     "6"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), lora.begin(), lora.end());
    return more;
  };
  const auto trained = Train("trained", kBase, 0.02, with({"--save_hf", Folder("adapter")}));
  ASSERT_EQ(trained.status, 0) << trained.out << trained.err;
  const nlohmann::json config = ReadJson(folder_.path() / "adapter" / "adapter_config.json");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 8.0);
  EXPECT_THAT(config["target_modules"], ElementsAre("q_proj", "v_proj"));
  EXPECT_FALSE(fs::exists(folder_.path() / "adapter" / "model.safetensors"));
  EXPECT_LT(fs::file_size(folder_.path() / "adapter" / "adapter_model.safetensors"), 10'000u);
  const double loss = EvaluatedLoss("trained");

  const auto again =
      Train("again", kBase, 0.0, {"--lora_adapter", Folder("adapter"), "--steps", "1"});
  ASSERT_EQ(again.status, 0) << again.out << again.err;
  EXPECT_NEAR(EvaluatedLoss("again"), loss, 1e-6);

  const auto merged =
      Train("merged", kBase, 0.02, with({"--save_hf", Folder("whole"), "--lora_merge"}));
  ASSERT_EQ(merged.status, 0) << merged.out << merged.err;
  EXPECT_EQ(EvaluatedLoss("merged"), loss);
  ASSERT_EQ(Train("whole_run", Folder("whole"), 0.0, {"--steps", "1"}).status, 0);
  EXPECT_NEAR(EvaluatedLoss("whole_run"), loss, 1e-5);
  ASSERT_EQ(Train("untrained", kBase, 0.0, {"--steps", "1"}).status, 0);
  EXPECT_GT(EvaluatedLoss("untrained"), loss + 1e-3) << "the adapters have learnt nothing";
}

TEST_F(TrainLoraTest, AResumedJobContinuesItsAdapters) {
  const std::vector<std::string> lora = {"--lora_rank", "4", "--steps", "4"};
  ASSERT_EQ(Train("whole", kBase, 0.02, lora).status, 0);
  std::vector<std::string> half = lora;
  half.back() = "2";
  half.insert(half.end(), {"--save_every", "2"});
  ASSERT_EQ(Train("half", kBase, 0.02, half).status, 0);
  // What a resume cannot go on with is no setting of the run.
  const auto resume_with = [&](const char* flag, const char* value) {
    return RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume", Folder("half"), "--steps",
                       "4", flag, value});
  };
  const auto refused = resume_with("--lora_rank", "8");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("no step was finished: the run keeps the settings"));
  const auto known_before = resume_with("--freeze", "*");
  EXPECT_EQ(known_before.status, 2);
  EXPECT_THAT(known_before.err, HasSubstr("nothing is left to train"));
  const auto resumed = RunProgram(
      {DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume", Folder("half"), "--steps", "4"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_NEAR(EvaluatedLoss("half"), EvaluatedLoss("whole"), 1e-5);
  // What comes behind the last step, which a run may have been ended in, can be had later.
  const auto late = RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume", Folder("half"),
                                "--steps", "4", "--save_hf", Folder("late")});
  ASSERT_EQ(late.status, 0) << late.out << late.err;
  EXPECT_THAT(late.err, HasSubstr("the run has all its steps: eval loss " +
                                  std::to_string(EvaluatedLoss("half")) + " at step 4"));
  EXPECT_TRUE(fs::exists(folder_.path() / "late" / "adapter_model.safetensors"));
}

TEST_F(TrainLoraTest, AQuantisedModelIsTrainedResumedAndMerged) {
  const std::vector<std::string> qlora = {"--lora_rank",
                                          "4",
                                          "--lora_dora",
                                          "--quantize_base",
                                          "nf4-double",
                                          "--neftune_noise_alpha",
                                          "5",
                                          "--steps",
                                          "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), qlora.begin(), qlora.end());
    return more;
  };
  const auto whole = Train("whole", kBase, 0.02, with({"--save_hf", Folder("adapter")}));
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_EQ(ReadJson(folder_.path() / "adapter" / "adapter_config.json")["use_dora"], true);
  const double loss = EvaluatedLoss("whole");
  // An adapter begins where it has ended, on the same bytes.
  const auto again =
      Train("again", kBase, 0.0,
            {"--lora_adapter", Folder("adapter"), "--quantize_base", "nf4-double", "--steps", "1"});
  ASSERT_EQ(again.status, 0) << again.out << again.err;
  EXPECT_NEAR(EvaluatedLoss("again"), loss, 1e-6);

  std::vector<std::string> half = with({"--save_every", "2"});
  half.back() = "2";
  ASSERT_EQ(Train("half", kBase, 0.02, half).status, 0);
  const auto resumed = RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume", Folder("half"),
                                   "--steps", "4", "--save_hf", Folder("merged"), "--lora_merge"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_NEAR(EvaluatedLoss("half"), loss, 1e-5);
  ASSERT_EQ(Train("merged_run", Folder("merged"), 0.0, {"--steps", "1"}).status, 0);
  EXPECT_NEAR(EvaluatedLoss("merged_run"), loss, 1e-4);
  const auto accuracy = ReadJsonLines(folder_.path() / "whole" / "metrics.jsonl").back();
  EXPECT_GE(accuracy.at("eval_accuracy").get<double>(), 0.0);
  EXPECT_LE(accuracy.at("eval_accuracy").get<double>(), 1.0);
}

// A stage knows the others' layers by their names alone; rank 0 writes the adapters of all.
TEST_F(TrainLoraTest, StagesTrainResumeAndMergeLikeOneStage) {
  const auto with = [](std::vector<std::string> first, std::vector<std::string> more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  const std::vector<std::string> stages = {"--pp", "2", "--gradient_accumulation_steps", "4"};
  const std::vector<std::string> kinds[] = {
      {"--lora_rank", "4", "--lora_targets", "q_proj", "down_proj", "--steps", "4"},
      {"--lora_rank", "4", "--lora_dora", "--quantize_base", "nf4-double", "--steps", "4"}};
  for (const auto& lora : kinds) {
    const std::string name = lora[2] == "--lora_dora" ? "dora" : "lora";
    SCOPED_TRACE(name);
    const auto one =
        Train(name + "-one", kBase, 0.02, with(lora, {"--save_hf", Folder(name + "-one-hf")}));
    ASSERT_EQ(one.status, 0) << one.out << one.err;
    const auto split = Train(name + "-cut", kBase, 0.02,
                             with(with(lora, stages), {"--save_hf", Folder(name + "-cut-hf")}));
    ASSERT_EQ(split.status, 0) << split.out << split.err;
    const double loss = EvaluatedLoss(name + "-one");
    EXPECT_NEAR(EvaluatedLoss(name + "-cut"), loss, 1e-5);
    EXPECT_EQ(fs::file_size(folder_.path() / (name + "-cut-hf") / "adapter_model.safetensors"),
              fs::file_size(folder_.path() / (name + "-one-hf") / "adapter_model.safetensors"));
    std::vector<std::string> taken = {"--lora_adapter", Folder(name + "-cut-hf"), "--steps", "1"};
    if (name == "dora") taken.insert(taken.end(), {"--quantize_base", "nf4-double"});
    const auto again = Train(name + "-again", kBase, 0.0, with(taken, stages));
    ASSERT_EQ(again.status, 0) << again.out << again.err;
    EXPECT_NEAR(EvaluatedLoss(name + "-again"), loss, 1e-5);
    const auto merged =
        Train(name + "-merged", kBase, 0.02,
              with(with(lora, stages), {"--save_hf", Folder(name + "-whole"), "--lora_merge"}));
    ASSERT_EQ(merged.status, 0) << merged.out << merged.err;
    ASSERT_EQ(Train(name + "-run", Folder(name + "-whole"), 0.0, {"--steps", "1"}).status, 0);
    EXPECT_NEAR(EvaluatedLoss(name + "-run"), loss, 1e-4);
  }
}

TEST_F(TrainLoraTest, KeepsFrozenWeightsAndRefusesInvalidFlags) {
  const auto frozen = Train("frozen", kBase, 0.02, {"--freeze", "model.layers.*", "--steps", "2"});
  EXPECT_EQ(frozen.status, 0) << frozen.err;
  const auto nothing = Train("nothing", kBase, 0.02, {"--freeze", "*", "--steps", "2"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("nothing is left to train"));
  const auto target = Train("target", kBase, 0.02,
                            {"--lora_rank", "2", "--lora_targets", "c_attn", "--steps", "2"});
  EXPECT_EQ(target.status, 2);
  EXPECT_THAT(target.err, HasSubstr("no linear layer of the model's layers is called c_attn"));
  const auto alone = Train("alone", kBase, 0.02, {"--lora_alpha", "2", "--steps", "2"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("flags of LoRA need --lora_rank or --lora_adapter"));
  const auto whole = Train("whole", kBase, 0.02, {"--quantize_base", "int8", "--steps", "2"});
  EXPECT_EQ(whole.status, 2);
  EXPECT_THAT(whole.err, HasSubstr("--quantize_base int8: quantised weights are not trained"));
}

}  // namespace
}  // namespace ds::testing
