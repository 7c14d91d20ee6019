#pragma once

// TrainTest: small trainings with the real programs, each in a run directory of its own.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
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

  // Kills that rank of a job which trains without end by these arguments: it is named, and all of
  // so many ranks end.
  void ExpectALostRankIsNamed(const std::vector<std::string>& arguments, int ranks, int lost) {
    Program program(DsrunCommand(RunDir("lost"), arguments));
    ASSERT_TRUE(program.WaitForOutput("step 1"));
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) pids.push_back(RankPid("lost", rank));
    ASSERT_EQ(::kill(pids[static_cast<std::size_t>(lost)], SIGKILL), 0);
    const auto result = program.Wait();
    EXPECT_EQ(result.status, 137) << result.out << result.err;
    const auto verdict = ReadJson(RunDir("lost") / "verdict.json");
    EXPECT_EQ(verdict["rank"], lost);
    EXPECT_EQ(verdict["signal"], SIGKILL);
    for (const pid_t pid : pids) EXPECT_NE(::kill(pid, 0), 0) << "a rank is still there";
  }

  // Kills that rank behind the first checkpoint: the job goes on from there to the losses of one
  // that lost nobody.
  void ExpectARestartChangesNoLoss(const std::vector<std::string>& arguments, int save_every,
                                   int lost) {
    const auto whole = RunProgram(DsrunCommand(RunDir("whole"), arguments));
    ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
    auto command = DsrunCommand(RunDir("restarted"), arguments);
    command.insert(command.end(), {"--save_every", std::to_string(save_every)});
    command.insert(command.begin() + 1, {"--max_restarts", "1"});
    Program program(command);
    ASSERT_TRUE(program.WaitForOutput("step-" + std::to_string(save_every)));
    ASSERT_EQ(::kill(RankPid("restarted", lost), SIGKILL), 0);
    const auto result = program.Wait();
    ASSERT_EQ(result.status, 0) << result.out << result.err;
    // Steps after the checkpoint may appear twice, in both generations: the same numbers.
    const auto expected = Losses("whole");
    const auto lines = ReadJsonLines(RunDir("restarted") / "metrics.jsonl");
    ASSERT_GE(lines.size(), expected.size());
    for (const auto& line : lines) {
      EXPECT_EQ(line["loss"].get<double>(), expected.at(line["step"].get<std::size_t>() - 1))
          << line;
    }
  }

  TemporaryFolder folder_;
};

}  // namespace ds::testing
