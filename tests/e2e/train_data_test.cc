// Training on what people have: chats, prompts and texts, cut by the model's tokenizer, with the
// real programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::UnorderedElementsAre;

constexpr char kConfig[] =
    R"({"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 32, "n_layer": 2,
        "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
constexpr char kTokenizerConfig[] =
    R"({"eos_token": "<|endoftext|>", "chat_template":
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"})";
constexpr char kLine[] = R"({"messages": [{"role": "user", "content": "2 + %?"},
 {"role": "assistant", "content": "It is a sum."}]})";

class TrainDataTest : public ::testing::Test {
 protected:
  TrainDataTest() : model_(folder_.path() / "model") {
    fs::create_directories(model_);
    Write("model/config.json", kConfig);
    Write("model/tokenizer_config.json", kTokenizerConfig);
    fs::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                  model_ / "tokenizer.json");
    Write("ds.json", R"({"train_batch_size": 4, "zero_optimization": {"stage": 2},
                         "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})");
  }

  std::string Write(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, content).ok());
    return (folder_.path() / name).string();
  }

  // So many chats that differ, a line each.
  static std::string Chats(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      std::string line(kLine);
      line.replace(line.find('%'), 1, std::string(static_cast<std::size_t>(1 + i % 7), 'x'));
      line.erase(line.find('\n'), 1);
      lines += line + "\n";
    }
    return lines;
  }

  ProgramResult Train(const std::string& run, const std::string& data,
                      std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--steps", "4"});
    return TrainAsLongAs(run, data, more);
  }
  // The flags say how long.
  ProgramResult TrainAsLongAs(const std::string& run, const std::string& data,
                              const std::vector<std::string>& flags) const {
    std::vector<std::string> arguments = {"--num_gpus",
                                          "2",
                                          "train",
                                          "--model",
                                          model_.string(),
                                          "--data",
                                          data,
                                          "--deepspeed_config",
                                          (folder_.path() / "ds.json").string(),
                                          "--seq_len",
                                          "64",
                                          "--data_cache",
                                          (folder_.path() / "cache").string()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(DsrunCommand(folder_.path() / run, arguments));
  }
  std::vector<nlohmann::json> Steps(const std::string& run) const {
    return ReadJsonLines(folder_.path() / run / "metrics.jsonl");
  }

  TemporaryFolder folder_;
  fs::path model_;
};

TEST_F(TrainDataTest, ChatsAreLearntAndCutOnce) {
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto first = Train("first", data);
  ASSERT_EQ(first.status, 0) << first.out << first.err;
  const std::vector<double> losses = Column(Steps("first"), "loss");
  EXPECT_LT(losses.back(), losses.front());
  ASSERT_EQ(Train("second", data).status, 0);  // from the cache
  EXPECT_EQ(Column(Steps("second"), "loss"), losses);
}

TEST_F(TrainDataTest, SamplesAndWhatLayersSeeOfThemGrowAndAResumedRunGoesOn) {
  const nlohmann::json ltd = {{"enabled", true},
                              {"total_layer_num", 2},
                              {"random_ltd_layer_num", 1},
                              {"random_ltd_layer_id", {1}},
                              {"model_type", "decoder"},
                              {"hidden_state_order", "batch_seq_dim"},
                              {"random_ltd_schedule",
                               {{"min_value", 8},
                                {"max_value", 64},
                                {"schedule_type", "fixed_linear"},
                                {"schedule_config", {{"require_steps", 8}, {"seq_per_step", 8}}}}}};
  const nlohmann::json config = {
      {"train_batch_size", 4},
      {"zero_optimization", {{"stage", 2}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-2}}}}},
      {"curriculum_learning",
       {{"enabled", true},
        {"min_difficulty", 16},
        {"max_difficulty", 64},
        {"schedule_type", "fixed_linear"},
        {"schedule_config", {{"total_curriculum_step", 4}, {"difficulty_step", 16}}}}},
      {"data_efficiency",
       {{"enabled", true}, {"data_routing", {{"enabled", true}, {"random_ltd", ltd}}}}}};
  Write("ds.json", config.dump());
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto whole = Train("whole", data);
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_THAT(Column(Steps("whole"), "tokens"), ElementsAre(4 * 16, 4 * 32, 4 * 48, 4 * 64));
  ASSERT_EQ(Train("half", data, {"--steps", "2", "--save_every", "2"}).status, 0);
  const auto resumed = RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume",
                                   (folder_.path() / "half").string(), "--steps", "4"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Column(Steps("half"), "loss"),
              Pointwise(DoubleNear(1e-5), Column(Steps("whole"), "loss")));
}

TEST_F(TrainDataTest, SamplesAreChosenByRarityAndAResumedRunGoesOn) {
  const nlohmann::json rarity = {
      {"difficulty_type", "percentile"},
      {"clustering_type", "schedule_based"},
      {"min_difficulty", 1},
      {"max_difficulty", 4},
      {"schedule_type", "fixed_linear"},
      {"schedule_config", {{"total_curriculum_step", 4}, {"difficulty_step", 1}}}};
  nlohmann::json config = ReadJson(folder_.path() / "ds.json");
  config["data_efficiency"] = {{"enabled", true},
                               {"data_sampling",
                                {{"enabled", true},
                                 {"curriculum_learning",
                                  {{"enabled", true},
                                   {"data_cluster_path", "none"},
                                   {"curriculum_metrics", {{"vocabularyrarity", rarity}}}}}}}};
  const std::string data = Write("chat.jsonl", Chats(40));
  const std::vector<std::string> alone = {"--packing", "none"};
  ASSERT_EQ(Train("plain", data, alone).status, 0);
  Write("ds.json", config.dump());
  const auto whole = Train("whole", data, alone);
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_NE(Column(Steps("whole"), "loss"), Column(Steps("plain"), "loss"));
  ASSERT_EQ(Train("half", data, {"--packing", "none", "--steps", "2", "--save_every", "2"}).status,
            0);
  const auto resumed = RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume",
                                   (folder_.path() / "half").string(), "--steps", "4"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Column(Steps("half"), "loss"),
              Pointwise(DoubleNear(1e-5), Column(Steps("whole"), "loss")));
}

TEST_F(TrainDataTest, ADecayEndsWithTheEpochs) {
  nlohmann::json config = nlohmann::json::parse(ReadFile(folder_.path() / "ds.json").value());
  config["scheduler"] = {
      {"type", "WarmupDecayLR"},
      {"params", {{"total_num_steps", "auto"}, {"warmup_num_steps", 1}, {"warmup_max_lr", 0.01}}}};
  Write("ds.json", config.dump());
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto epochs = TrainAsLongAs("epochs", data, {"--epochs", "2"});
  ASSERT_EQ(epochs.status, 0) << epochs.out << epochs.err;
  const std::vector<double> rates = Column(Steps("epochs"), "lr");
  ASSERT_GT(rates.size(), 3u);
  ASSERT_EQ(TrainAsLongAs("steps", data, {"--steps", std::to_string(rates.size())}).status, 0);
  EXPECT_EQ(Column(Steps("steps"), "lr"), rates);
  EXPECT_LT(rates.back(), *std::max_element(rates.begin(), rates.end()));
  // A warm-up of a share of them is that of so many.
  const auto warmed_up = [&](const std::string& run, const std::vector<std::string>& flags) {
    Write("ds.json", config.dump());
    const auto result = TrainAsLongAs(run, data, flags);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    return Column(Steps(run), "lr");
  };
  config["scheduler"]["params"]["warmup_num_steps"] = (rates.size() + 1) / 2;
  const std::vector<double> half = warmed_up("half", {"--epochs", "2"});
  EXPECT_NE(half, rates);
  config["scheduler"]["params"].erase("warmup_num_steps");
  EXPECT_EQ(warmed_up("share", {"--epochs", "2", "--warmup_steps", "0.5"}), half);
  // The same by a flag.
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "ds.json", R"({"train_batch_size": 4})").ok());
  const auto flag =
      TrainAsLongAs("flag", data, {"--epochs", "2", "--lr_schedule", "WarmupDecayLR"});
  EXPECT_EQ(flag.status, 0) << flag.err;
}

TEST_F(TrainDataTest, RowsOfParquetFilesAreLearntLikeLines) {
  const std::string data = DS_SOURCE_DIR "/tests/unit/tokenizer/arrow_goldens/chats.parquet";
  const auto rows = Train("rows", data, {"--packing", "none"});
  if (!fs::exists(DS_BIN_DIR "/libdsrun_arrow.so")) {
    EXPECT_EQ(rows.status, 2);
    EXPECT_THAT(rows.err, HasSubstr("scripts/setup.sh fetches them"));
    return;
  }
  ASSERT_EQ(rows.status, 0) << rows.out << rows.err;
  std::string lines;
  for (const char* i : {"0", "1", "2", "3", "4"}) {
    lines += std::string(R"({"messages": [{"role": "user", "content": ")") + i +
             R"("}, {"role": "assistant", "content": "b )" + i + "\"}]}\n";
  }
  ASSERT_EQ(Train("lines", Write("chats.jsonl", lines), {"--packing", "none"}).status, 0);
  EXPECT_EQ(Column(Steps("rows"), "loss"), Column(Steps("lines"), "loss"));
}

TEST_F(TrainDataTest, RowsThatAreLeftOutAreCounted) {
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    lines += R"({"conversations": [{"from": "human", "value": "2 + )" + std::to_string(i) +
             R"(?"}, {"from": "gpt", "value": "A sum."}], "messages": null})" + "\n";
  }
  for (const char* i : {"1", "2"}) {
    lines += std::string(R"({"prompt": "a", "completion": "b )") + i + "\", \"label\": false}\n";
  }
  lines += R"({"prompt": ")" + std::string(200, '?') + "\", \"completion\": \"c\"}\n";
  const auto result = Train("run", Write("rows.jsonl", lines), {"--max_length", "24"});
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("left out 2 rows of the data whose \"label\" is false"));
  EXPECT_THAT(result.err,
              HasSubstr("left out 1 rows of the data that have no learnt token within"));
  const auto bytes = Train("bytes", Write("a.txt", "a b c"),
                           {"--tokenizer", "bytes",  //
                            "--max_length", "24"});
  EXPECT_EQ(bytes.status, 2);
  EXPECT_THAT(bytes.err, HasSubstr("bytes and .bin files are taken as they are"));
}

TEST_F(TrainDataTest, WhatCannotBeUsedIsNamedOrCounted) {
  const std::string data = Write("chat.jsonl", Chats(40) + "{\"messages\": 1}\n" + Chats(2));
  const auto stopped = Train("stopped", data);
  EXPECT_EQ(stopped.status, 2);
  EXPECT_THAT(stopped.err, HasSubstr("chat.jsonl:41: "));
  const auto skipped = Train("skipped", data, {"--on_bad_data", "skip"});
  EXPECT_EQ(skipped.status, 0) << skipped.err;
  EXPECT_THAT(skipped.err, HasSubstr("passed over 1 of the data's texts, the first of them: "));
  const auto missing = Train("missing", data, {"--text_field", "body"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("chat.jsonl:1: "));
  EXPECT_THAT(missing.err, HasSubstr("body"));
}

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

TEST_F(TrainDataTest, WhatCannotBeEvaluatedOnIsNamedBeforeTheTraining) {
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto outside =
      Train("outside", data, {"--eval_data", Write("a.bin", std::string(130, '~'))});
  EXPECT_EQ(outside.status, 2);
  EXPECT_THAT(outside.err, HasSubstr("the data to evaluate on: "));
  EXPECT_THAT(outside.err, HasSubstr("token id 32382 is outside the model's vocabulary"));
  EXPECT_FALSE(fs::exists(folder_.path() / "outside" / "metrics.jsonl"));
  const std::string unlearnt = R"({"messages": [{"role": "model", "content": "x"}]})";
  const auto silent = Train("silent", data, {"--eval_data", Write("b.jsonl", unlearnt)});
  EXPECT_EQ(silent.status, 2);
  EXPECT_THAT(silent.err,
              HasSubstr("the data to evaluate on: nothing of the data would be learnt"));
  // The last sample of --data, which is held out, has a prompt alone.
  const std::string asked = R"({"messages": [{"role": "user", "content": "x"}]})";
  const auto none = Train("none", Write("c.jsonl", Chats(8) + asked),
                          {"--eval_split", "0.01", "--packing", "none"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("the evaluation data has no token to learn"));
}

// At a rate of 0 no evaluation is better than the first.
TEST_F(TrainDataTest, TheBestEvaluationIsKeptAndPatienceEnds) {
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
  EXPECT_THAT(run.err, ContainsRegex("the best evaluation was that of step 1, loss [0-9.]+: its "
                                     "checkpoint is step-1"));
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
    const std::string step = std::string("the best evaluation was that of step ") + digit + ",";
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

// A blend names what it takes of every path, and a run that was resumed takes what an uninterrupted
// one does.
TEST_F(TrainDataTest, ABlendGoesOnWhereItWasCut) {
  const std::string text = Write("text.txt", std::string(4000, 'x'));
  const std::vector<std::string> blend = {
      "--data", Write("chat.jsonl", Chats(40)), "--data_weights", "3", "1", "--save_every", "2"};
  const auto whole = Train("whole", text, blend);
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("the blend: 12 samples of " + text + " ("));
  EXPECT_THAT(whole.err, ContainsRegex(", 4 of .*chat.jsonl \\([0-9.]+\\)"));
  std::vector<std::string> cut = blend;
  cut.insert(cut.end(), {"--steps", "2"});
  ASSERT_EQ(Train("cut", text, cut).status, 0);
  const auto resumed = RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume",
                                   (folder_.path() / "cut").string(), "--steps", "4"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Column(Steps("cut"), "loss"),
              Pointwise(DoubleNear(2e-6), Column(Steps("whole"), "loss")));
  const auto other =
      RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume",
                  (folder_.path() / "cut").string(), "--steps", "6", "--data_weights", "1", "1"});
  EXPECT_EQ(other.status, 6);
  EXPECT_THAT(other.err, HasSubstr("one with weights [3.0,1.0], this run has [1.0,1.0]"));
}

// All documents have 16 tokens, so that a packed sample of 64 is four of them in four samples.
TEST_F(TrainDataTest, PackedDocumentsGiveTheLossesOfDocumentsThatAreAlone) {
  std::string lines;
  for (int i = 0; i < 64; ++i) {
    lines += "{\"text\": \"" + std::string(15, static_cast<char>('a' + i % 26)) + "\"}\n";
  }
  nlohmann::json tokenizer = ReadJson(model_ / "tokenizer.json");
  tokenizer["model"]["merges"] = nlohmann::json::array();  // a byte is a token
  Write("model/tokenizer.json", tokenizer.dump());
  const std::string data = Write("text.jsonl", lines);
  const auto packed = Train("packed", data, {"--packing", "whole", "--no_shuffle"});
  ASSERT_EQ(packed.status, 0) << packed.err;
  Write("ds.json", R"({"train_batch_size": 16, "zero_optimization": {"stage": 3},
                       "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})");
  const auto alone = Train("alone", data, {"--packing", "none", "--no_shuffle", "--seq_len", "16"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_THAT(Column(Steps("packed"), "loss"),
              Pointwise(DoubleNear(2e-6), Column(Steps("alone"), "loss")));
  const auto bytes = Train("bytes", data, {"--packing", "whole", "--tokenizer", "bytes"});
  EXPECT_EQ(bytes.status, 2);
  EXPECT_THAT(bytes.err, HasSubstr("packing by documents (--packing) needs texts"));
}

}  // namespace
}  // namespace ds::testing
