// The main job, end to end, with the real programs: dsrun -> dsrund -> dsrank -> ZeRO on real text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/train_fixture.h"
#include "tests/places.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::DoubleNear;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::StartsWith;

TEST_F(TrainTest, TheCommandOfTheReadmeRunsWithItsDefaults) {
  const auto result = RunProgram({DS_BIN_DIR "/dsrun", "--hostfile",
                                  DS_SOURCE_DIR "/hostfile_examples/localhost", "--num_gpus", "8",
                                  "--run_dir", RunDir("demo").string(), "train", "--steps", "6"});
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("gpt2-demo"));
  if (!fs::exists("/proc/driver/nvidia")) {
    EXPECT_THAT(result.err, HasSubstr("no GPU: its ranks run on CPU"));
  }
  const auto steps = ReadJsonLines(RunDir("demo") / "metrics.jsonl");
  EXPECT_EQ(Column(steps, "step"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_LT(steps.back()["loss"].get<double>(), steps.front()["loss"].get<double>());
  EXPECT_THAT(result.out, ContainsRegex("loss [0-9.]+ at step 1, [0-9.]+ at step 6\n"));
  EXPECT_THAT(result.out, EndsWith("# this machine\n"));
  EXPECT_TRUE(fs::exists(RunDir("demo") / "config.resolved.json"));
  EXPECT_TRUE(fs::exists(RunDir("demo") / "job.json"));
  EXPECT_FALSE(fs::exists(RunDir("demo") / "verdict.json"));
  const fs::directory_iterator logs(RunDir("demo") / "logs" / "0");
  EXPECT_EQ(std::distance(begin(logs), end(logs)), 16) << "out and err of 8 ranks";
}

TEST_F(TrainTest, FilesOfATrainingFollowTheUmask) {
  for (const auto& [mask, others] : {std::pair("077", false), std::pair("0", true)}) {
    std::vector<std::string> command = {"/bin/sh", "-c",
                                        std::string("umask ") + mask + " && exec \"$@\"", "sh"};
    const fs::path run = RunDir(std::string("mask") + mask);
    for (const std::string& word :
         DsrunCommand(run, Train(1, 0, {"--steps", "1", "--save_every", "1"}))) {
      command.push_back(word);
    }
    ASSERT_EQ(RunProgram(command).status, 0);
    const auto others_read = [&run](const std::string& name) {
      return (fs::status(run / name).permissions() & fs::perms::others_read) != fs::perms::none;
    };
    EXPECT_FALSE(others_read("job.json"));
    for (const std::string name : {"config.resolved.json", "metrics.jsonl", "logs/0/rank-00000.err",
                                   "checkpoints", "checkpoints/step-1"}) {
      EXPECT_EQ(others_read(name), others) << name << " with umask " << mask;
    }
  }
}

TEST_F(TrainTest, StagesAndWorldSizesGiveOneTrajectory) {
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("one"), Train(1, 0, {"--steps", "5"}))).status, 0);
  const auto expected = Losses("one");
  ASSERT_EQ(expected.size(), 5u);
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string name = "stage" + std::to_string(stage);
    ASSERT_EQ(RunProgram(DsrunCommand(RunDir(name), Train(2, stage, {"--steps", "5"}))).status, 0);
    EXPECT_THAT(Losses(name), ::testing::Pointwise(::testing::DoubleNear(1e-5), expected)) << name;
  }
}

// tests/e2e/transformers has ds_configs as transformers publishes them, "auto" and all.
TEST_F(TrainTest, ConfigsThatTransformersPublishesTrainAsTheyAre) {
  for (const std::string name : {"zero2", "zero3", "zero3_offload"}) {
    SCOPED_TRACE(name);
    const auto run = RunProgram(DsrunCommand(
        RunDir(name),
        {"--num_gpus", "2", "train", "--model", "gpt2-demo", "--data", DS_SOURCE_DIR "/LICENSE",
         "--deepspeed_config", DS_SOURCE_DIR "/tests/e2e/transformers/" + name + ".json",
         "--seq_len", "32", "--steps", "2", "--learning_rate", "2e-3"}));
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    const auto config = ReadJson(RunDir(name) / "config.resolved.json");
    EXPECT_EQ(config["train_batch_size"], 2 * 8) << "Trainer's own 8 samples of a rank";
    EXPECT_EQ(config["optimizer"]["params"]["lr"], 2e-3);
    EXPECT_EQ(config["zero_optimization"]["stage"], name == "zero2" ? 2 : 3);
    EXPECT_EQ(config["zero_optimization"]["offload_optimizer"]["device"],
              name == "zero3_offload" ? "cpu" : "none");
    EXPECT_EQ(Losses(name).size(), 2u);
    EXPECT_THAT(Losses(name), Pointwise(DoubleNear(1e-5), Losses("zero2")));
  }
}

TEST_F(TrainTest, RecomputedActivationsChangeNoLoss) {
  const auto run = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "3"});
    const auto result = RunProgram(DsrunCommand(RunDir(name), Train(2, 3, std::move(more))));
    EXPECT_EQ(result.status, 0) << result.err;
    return Losses(name);
  };
  const std::vector<double> kept = run("kept", {});
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(run("full", {"--recompute", "full"}), kept);
  EXPECT_EQ(run("attention", {"--recompute", "attention"}), kept);
  EXPECT_THAT(run("tiled", {"--tile_mlp", "3"}),
              ::testing::Pointwise(::testing::DoubleNear(1e-5), kept));
  const auto refused =
      RunProgram(DsrunCommand(RunDir("refused"), Train(2, 3, {"--recompute", "some"})));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("'some' is none of none, full, attention, every:N"));
}

TEST_F(TrainTest, ResumeContinuesAsIfNeverStopped) {
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("whole"), Train(2, 2, {"--steps", "6"}))).status, 0);
  ASSERT_EQ(
      RunProgram(DsrunCommand(RunDir("parts"), Train(2, 2, {"--steps", "3", "--save_every", "3"})))
          .status,
      0);
  const auto resumed = RunProgram(
      {DS_BIN_DIR "/dsrun", "--num_gpus", "2", "resume", RunDir("parts").string(), "--steps", "6"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_EQ(Losses("parts"), Losses("whole"));
}

// job.json names what -x gave. A value is given again; that of a name comes from the shell.
TEST_F(TrainTest, ResumeTakesNoValueOfItsShellForOneThatWasGiven) {
  const fs::path run = RunDir("run");
  std::vector<std::string> first = DsrunCommand(run, Train(1, 0, {"--steps", "1"}));
  first.insert(first.begin() + 1, {"-x", "DSRUN_LOG_LEVEL=debug"});
  first.insert(first.end(), {"--save_every", "1"});
  ASSERT_EQ(RunProgram(first).status, 0);
  const auto resume = [&](const std::vector<std::string>& flags, int steps,
                          std::vector<std::string> environment) {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"resume", run.string(), "--steps", std::to_string(steps)});
    return RunProgram(command, {.environment = std::move(environment)});
  };
  const ProgramResult without = resume({}, 2, {"DSRUN_LOG_LEVEL=info"});
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.err, HasSubstr("the job was given DSRUN_LOG_LEVEL by -x NAME=VALUE"));
  EXPECT_THAT(without.err, HasSubstr("give -x DSRUN_LOG_LEVEL=... again, or -x DSRUN_LOG_LEVEL"));
  const ProgramResult anew = resume({"-x", "DSRUN_LOG_LEVEL"}, 2, {"DSRUN_LOG_LEVEL=warning"});
  EXPECT_EQ(anew.status, 0) << anew.err;
  const ProgramResult named = resume({}, 3, {"DSRUN_LOG_LEVEL=info"});
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_THAT(named.err, HasSubstr("ranks get DSRUN_LOG_LEVEL of this shell"));
  EXPECT_THAT(named.err, ::testing::Not(HasSubstr("older")));
  // Versions before did not say which names had values.
  auto job = nlohmann::json::parse(*ReadFile(run / "job.json"));
  ASSERT_EQ(job.erase("redacted"), 1U);
  ASSERT_TRUE(WriteFileAtomically(run / "job.json", job.dump()).ok());
  EXPECT_THAT(resume({}, 4, {"DSRUN_LOG_LEVEL=info"}).err, HasSubstr("an older dsrun wrote this"));
}

TEST_F(TrainTest, ResumeOnAnotherWorldSizeAndStage) {
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("whole"), Train(2, 3, {"--steps", "6"}))).status, 0);
  ASSERT_EQ(
      RunProgram(DsrunCommand(RunDir("parts"), Train(4, 3, {"--steps", "3", "--save_every", "3"})))
          .status,
      0);
  const auto resumed =
      RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "2", "resume", RunDir("parts").string(),
                  "--steps", "6", "--deepspeed_config", WriteConfig(1).string()});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Losses("parts"), ::testing::Pointwise(::testing::DoubleNear(1e-5), Losses("whole")));
}

TEST_F(TrainTest, ResumeWithNothingToResumeIsRefused) {
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("none"), Train(1, 0, {"--steps", "1"}))).status, 0);
  const auto result =
      RunProgram({DS_BIN_DIR "/dsrun", "resume", RunDir("none").string(), "--steps", "2"});
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err, HasSubstr("checkpoint"));
}

class FailingTrainTest : public TrainTest {
 protected:
  // The steps that have been made since there were so many lines of metrics.
  std::vector<double> StepsAfter(const std::string& run, std::size_t lines) const {
    std::vector<double> steps = Column(ReadJsonLines(RunDir(run) / "metrics.jsonl"), "step");
    steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(lines));
    return steps;
  }
};

TEST_F(FailingTrainTest, AKilledRankStopsAllAndIsNamed) {
  Program program(DsrunCommand(RunDir("killed"), Train(2, 1, {"--steps", "100000"})));
  ASSERT_TRUE(program.WaitForOutput("step 1"));
  const pid_t victim = RankPid("killed", 1);
  const pid_t other = RankPid("killed", 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const auto result = program.Wait();
  EXPECT_EQ(result.status, 137) << result.out << result.err;
  const auto verdict = ReadJson(RunDir("killed") / "verdict.json");
  EXPECT_EQ(verdict["rank"], 1);
  EXPECT_EQ(verdict["signal"], SIGKILL);
  EXPECT_NE(::kill(other, 0), 0) << "rank 0 is still there";
}

TEST_F(FailingTrainTest, AKilledRankIsRestartedFromItsCheckpoint) {
  ExpectARestartChangesNoLoss(Train(2, 2, {"--steps", "120"}), /*save_every=*/20, /*lost=*/1);
}

// step-90 stays where it is, and the highest of all. Nobody goes on from it any more.
TEST_F(FailingTrainTest, ResumingAnOlderCheckpointStartsANewLineage) {
  const auto trained = RunProgram(
      DsrunCommand(RunDir("line"), Train(2, 1, {"--steps", "90", "--save_every", "10"})));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto resume = [&](std::vector<std::string> more) {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun",    "--num_gpus", "2",
                                        "--max_restarts",       "1",          "resume",
                                        RunDir("line").string()};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  Program rewound(resume({"--checkpoint", "step-10", "--steps", "89"}));
  ASSERT_TRUE(rewound.WaitForOutput("step-20")) << rewound.err();
  ASSERT_EQ(::kill(RankPid("line", 1), SIGKILL), 0);
  const auto restarted = rewound.Wait();
  ASSERT_EQ(restarted.status, 0) << restarted.err;
  int going_back = 0;
  double last = 10;
  for (const double step : StepsAfter("line", 90)) {
    if (step != last + 1) {
      ++going_back;
      EXPECT_TRUE(step > 20 && step <= last) << step << " comes behind " << last;
    }
    last = step;
  }
  EXPECT_EQ(last, 89);
  EXPECT_LE(going_back, 1);

  ASSERT_TRUE(fs::exists(RunDir("line") / "checkpoints" / "step-90"));
  const std::size_t lines = ReadJsonLines(RunDir("line") / "metrics.jsonl").size();
  const auto resumed = RunProgram(resume({"--steps", "92"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const std::vector<double> steps = StepsAfter("line", lines);
  ASSERT_FALSE(steps.empty());
  EXPECT_LE(steps.front(), 90);
  EXPECT_EQ(steps.back(), 92);
}

TEST_F(FailingTrainTest, CtrlCStopsEverythingAndExits130) {
  Program program(
      DsrunCommand(RunDir("stopped"), Train(2, 0, {"--steps", "100000", "--save_every", "2"})));
  ASSERT_TRUE(program.WaitForOutput("step-4"));
  const pid_t rank = RankPid("stopped", 1);
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_NE(::kill(rank, 0), 0);
  EXPECT_THAT(result.err, HasSubstr("`dsrun resume " + ShortenPath(RunDir("stopped")) +
                                    "` continues after step "));
}

TEST_F(FailingTrainTest, AModelThatCannotBeWrittenIsRefusedBeforeTheFirstStep) {
  const fs::path file = folder_.path() / "file";
  ASSERT_TRUE(WriteFileAtomically(file, "no folder").ok());
  const auto result = RunProgram(DsrunCommand(
      RunDir("refused"), Train(2, 1, {"--steps", "2", "--save_hf", (file / "hf").string()})));
  EXPECT_EQ(result.status, 2) << result.out << result.err;
  EXPECT_THAT(result.err + result.out, HasSubstr("--save_hf: "));
  const fs::path metrics = RunDir("refused") / "metrics.jsonl";
  EXPECT_TRUE(!fs::exists(metrics) || fs::is_empty(metrics)) << "no step was trained";
}

TEST_F(FailingTrainTest, AModelThatCannotBeWrittenInTheEndIsKeptAsACheckpoint) {
  const fs::path model = folder_.path() / "hf";
  Program program(
      DsrunCommand(RunDir("kept"), Train(2, 2, {"--steps", "300", "--save_hf", model.string()})));
  ASSERT_TRUE(program.WaitForOutput("step 1"));
  ASSERT_TRUE(fs::remove(model));
  ASSERT_TRUE(WriteFileAtomically(model, "no folder").ok());
  const auto result = program.Wait();
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  EXPECT_THAT(result.err + result.out, HasSubstr("the model is kept in "));
  EXPECT_TRUE(fs::exists(RunDir("kept") / "checkpoints" / "step-300"));
}

TEST_F(FailingTrainTest, AFullDiskWhileSavingKeepsTheOldCheckpoint) {
  ASSERT_EQ(
      RunProgram(DsrunCommand(RunDir("full"), Train(2, 1, {"--steps", "2", "--save_every", "2"})))
          .status,
      0);
  // One rank's share of the state (10 MB) is larger than the limit; logs, metrics and shared memory
  // are not.
  const auto result = RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", "1",
                                  "resume", RunDir("full").string(), "--steps", "4"},
                                 {.file_size_limit = 8 << 20});
  EXPECT_EQ(result.status, 6) << result.out << result.err;
  EXPECT_THAT(result.err + result.out, HasSubstr("step-4"));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(RunDir("full") / "checkpoints")) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("step-2", "latest", ".lock"));
  EXPECT_THAT(*ReadFile(RunDir("full") / "checkpoints" / "latest"), StartsWith("step-2\n"));
}

TEST_F(TrainTest, ReportsTimesAndMonitorsOfEachStep) {
  nlohmann::json config = ReadJson(WriteConfig(2));
  config["train_micro_batch_size_per_gpu"] = 1;
  config["wall_clock_breakdown"] = true;
  for (const char* monitor : {"csv_monitor", "tensorboard"}) {
    config[monitor] = {
        {"enabled", true}, {"output_path", folder_.path().string()}, {"job_name", monitor}};
  }
  const fs::path told = folder_.path() / "told.json";
  ASSERT_TRUE(WriteFileAtomically(told, config.dump()).ok());
  std::vector<std::string> arguments = Train(2, 2, {"--steps", "2"});
  std::replace(arguments.begin(), arguments.end(), WriteConfig(2).string(), told.string());
  const auto result = RunProgram(DsrunCommand(RunDir("told"), arguments));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              ContainsRegex("time \\(ms\\) \\| fwd_microstep: [0-9.]+ \\| bwd_microstep"));
  EXPECT_THAT(result.out, ContainsRegex("time \\(ms\\) \\| fwd: [0-9.]+ \\| bwd: [0-9.]+ \\| "));
  for (const auto& step : ReadJsonLines(RunDir("told") / "metrics.jsonl")) {
    EXPECT_LE(step.at("data_seconds").get<double>(), step.at("step_seconds").get<double>());
    const auto& phases = step.at("phase_seconds");
    const double inner = phases.at("backward_inner"), rest = phases.at("backward_allreduce");
    EXPECT_GT(phases.at("forward").get<double>(), 0.0);
    EXPECT_GE(phases.at("backward").get<double>(), inner + rest);
    EXPECT_LT(phases.at("forward").get<double>() + inner + phases.at("step").get<double>(),
              step.at("step_seconds").get<double>());
  }
  const std::string losses =
      *ReadFile(folder_.path() / "csv_monitor" / "Train_Samples_train_loss.csv");
  EXPECT_THAT(losses, ::testing::MatchesRegex("step,train_loss\r\n4,[0-9.]+\r\n8,[0-9.]+\r\n"));
  EXPECT_TRUE(fs::exists(folder_.path() / "csv_monitor" /
                         "Train_Samples_elapsed_time_ms_backward_allreduce.csv"));
  EXPECT_GT(fs::file_size(*fs::directory_iterator(folder_.path() / "tensorboard")), 500U);
}

TEST_F(TrainTest, SavedModelIsAHuggingFaceFolder) {
  const fs::path model = folder_.path() / "hf";
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("save"),
                                    Train(2, 3, {"--steps", "1", "--save_hf", model.string()})))
                .status,
            0);
  EXPECT_TRUE(fs::exists(model / "config.json"));
  EXPECT_TRUE(fs::exists(model / "model.safetensors"));
  // It trains on: the weights have been read when the loss starts lower than from random ones.
  auto again = Train(1, 0, {"--steps", "1"});
  std::replace(again.begin(), again.end(), std::string("gpt2-demo"), model.string());
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("again"), again)).status, 0);
  EXPECT_LT(Losses("again")[0], Losses("save")[0]);
}

}  // namespace
}  // namespace ds::testing
