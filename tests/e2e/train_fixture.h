#pragma once

// TrainTest: small trainings with the real programs, each in a run directory of its own.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {

class TrainTest : public ::testing::Test {
 protected:
  std::filesystem::path RunDir(const std::string& name) const { return folder_.path() / name; }

  // A ds_config of the given stage; the batch is `global_batch` at any world size.
  std::filesystem::path WriteConfig(int stage, int global_batch = 4) const {
    const std::filesystem::path path = folder_.path() / ("stage" + std::to_string(stage) + ".json");
    const nlohmann::json config = {
        {"train_batch_size", global_batch},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
        {"zero_optimization", {{"stage", stage}}},
    };
    EXPECT_TRUE(WriteFileAtomically(path, config.dump()).ok());
    return path;
  }

  // Arguments of a small run over a few KB of text.
  std::vector<std::string> Train(int ranks, int stage, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"--num_gpus",
                                          std::to_string(ranks),
                                          "train",
                                          "--model",
                                          "gpt2-demo",
                                          "--data",
                                          DS_SOURCE_DIR "/LICENSE",
                                          "--deepspeed_config",
                                          WriteConfig(stage).string(),
                                          "--seq_len",
                                          "32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<double> Losses(const std::string& run) const {
    return Column(ReadJsonLines(RunDir(run) / "metrics.jsonl"), "loss");
  }

  // The pid of a rank that was started last, as events.jsonl tells it.
  pid_t RankPid(const std::string& run, int rank) const {
    pid_t pid = -1;
    for (const auto& event : ReadJsonLines(RunDir(run) / "events.jsonl")) {
      if (event.value("event", "") == "rank_started" && event.value("rank", -1) == rank) {
        pid = event.at("pid").get<pid_t>();
      }
    }
    EXPECT_GT(pid, 0) << "no rank_started event";
    return pid;
  }

  TemporaryFolder folder_;
};

}  // namespace ds::testing
