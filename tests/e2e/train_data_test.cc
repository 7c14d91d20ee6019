// Training on what people have: chats, prompts and texts, cut by the model's tokenizer, with the
// real programs.

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
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

TEST_F(TrainDataTest, TokenizesChatsOnceAndTrainsOnThem) {
  const std::string data = Write("chat.jsonl", Chats(40));
  const auto first = Train("first", data);
  ASSERT_EQ(first.status, 0) << first.out << first.err;
  const std::vector<double> losses = Column(Steps("first"), "loss");
  EXPECT_LT(losses.back(), losses.front());
  ASSERT_EQ(Train("second", data).status, 0);  // from the cache
  EXPECT_EQ(Column(Steps("second"), "loss"), losses);
}

TEST_F(TrainDataTest, GrowsSamplesAndLayerTokensAlsoAfterAResume) {
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

TEST_F(TrainDataTest, SelectsSamplesByRarityAlsoAfterAResume) {
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

TEST_F(TrainDataTest, TrainsOnRowsOfParquetFilesLikeLines) {
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
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += std::to_string(i) + " ";
  lines += R"({"prompt": ")" + prompt + "\", \"completion\": \"c\"}\n";
  const auto result = Train("run", Write("rows.jsonl", lines), {"--max_length", "24"});
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("left out 2 rows of the data with a \"label\" of false"));
  EXPECT_THAT(result.err,
              HasSubstr("left out 1 rows of the data that have no trained token within"));
  const auto bytes = Train("bytes", Write("a.txt", "a b c"),
                           {"--tokenizer", "bytes",  //
                            "--max_length", "24"});
  EXPECT_EQ(bytes.status, 2);
  EXPECT_THAT(bytes.err, HasSubstr("--max_length needs tokenized texts"));
}

TEST_F(TrainDataTest, NamesOrCountsUnusableData) {
  const std::string data = Write("chat.jsonl", Chats(40) + "{\"messages\": 1}\n" + Chats(2));
  const auto stopped = Train("stopped", data);
  EXPECT_EQ(stopped.status, 2);
  EXPECT_THAT(stopped.err, HasSubstr("chat.jsonl:41: "));
  const auto skipped = Train("skipped", data, {"--on_bad_data", "skip"});
  EXPECT_EQ(skipped.status, 0) << skipped.err;
  EXPECT_THAT(skipped.err, HasSubstr("skipped 1 of the data's texts, the first: "));
  const auto missing = Train("missing", data, {"--text_field", "body"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("chat.jsonl:1: "));
  EXPECT_THAT(missing.err, HasSubstr("body"));
}

// A blend names what it takes of every path, and a run that was resumed takes what an uninterrupted
// one does.
TEST_F(TrainDataTest, ABlendResumesWhereItWasInterrupted) {
  const std::string text = Write("text.txt", std::string(4000, 'x'));
  const std::vector<std::string> blend = {
      "--data", Write("chat.jsonl", Chats(40)), "--data_weights", "3", "1", "--save_every", "2"};
  const auto whole = Train("whole", text, blend);
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("the blend: 12 samples of " + text + " ("));
  EXPECT_THAT(whole.err, ContainsRegex(", 4 of .*chat.jsonl \\([0-9.]+\\)"));
  std::vector<std::string> split = blend;
  split.insert(split.end(), {"--steps", "2"});
  ASSERT_EQ(Train("cut", text, split).status, 0);
  const auto resumed = RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume",
                                   (folder_.path() / "cut").string(), "--steps", "4"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Column(Steps("cut"), "loss"),
              Pointwise(DoubleNear(2e-6), Column(Steps("whole"), "loss")));
  const auto other =
      RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume",
                  (folder_.path() / "cut").string(), "--steps", "6", "--data_weights", "1", "1"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("--data_weights: a run that is resumed reads its data on"));
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
  EXPECT_THAT(bytes.err, HasSubstr("packing by documents (--packing) needs tokenized texts"));
}

}  // namespace
}  // namespace ds::testing
