#pragma once

// TrainDataTest: trainings of a small GPT-2 folder on text, chats and prompts, with the real
// programs.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {

inline constexpr char kTrainDataConfig[] =
    R"({"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 32, "n_layer": 2,
        "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
inline constexpr char kTrainDataTokenizerConfig[] =
    R"({"eos_token": "<|endoftext|>", "chat_template":
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"})";
inline constexpr char kTrainDataLine[] = R"({"messages": [{"role": "user", "content": "2 + %?"},
 {"role": "assistant", "content": "It is a sum."}]})";

class TrainDataTest : public ::testing::Test {
 protected:
  TrainDataTest() : model_(folder_.path() / "model") {
    std::filesystem::create_directories(model_);
    Write("model/config.json", kTrainDataConfig);
    Write("model/tokenizer_config.json", kTrainDataTokenizerConfig);
    std::filesystem::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
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
      std::string line(kTrainDataLine);
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
  std::filesystem::path model_;
};

}  // namespace ds::testing
