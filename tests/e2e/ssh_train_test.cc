// `dsrun train` on several hosts: the same numbers as on one, and a verdict that names what failed.

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/ssh_job.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class SshTrainTest : public SshJob {
 protected:
  std::vector<std::string> Train(int stage, bool bf16, int steps) {
    const nlohmann::json config = {
        {"train_micro_batch_size_per_gpu", 1},
        {"gradient_accumulation_steps", 1},
        {"bf16", {{"enabled", bf16}}},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
        {"zero_optimization", {{"stage", stage}}},
    };
    const std::filesystem::path path = folder() / "ds.json";
    EXPECT_TRUE(WriteFileAtomically(path, config.dump()).ok());
    return {"train",
            "--model",
            "gpt2-demo",
            "--data",
            DS_SOURCE_DIR "/LICENSE",
            "--deepspeed_config",
            path.string(),
            "--seq_len",
            "32",
            "--steps",
            std::to_string(steps)};
  }

  std::vector<std::string> OnHosts(const std::vector<std::string>& words,
                                   const std::vector<std::string>& flags = {}) {
    return Dsrun({"--hostfile", (folder() / "hosts").string()}, flags, words);
  }

  std::vector<std::string> OnThisHost(int ranks, const std::vector<std::string>& words) {
    return Dsrun({"--num_gpus", std::to_string(ranks)}, {}, words);
  }

  ProgramResult RunJob(const std::vector<std::string>& command) {
    return RunProgram(command,
                      {.environment = hosts().Environment(), .working_directory = folder()});
  }

  std::vector<double> Losses() { return Column(ReadJsonLines(job() / "metrics.jsonl"), "loss"); }
  std::filesystem::path job() const { return folder() / ("job" + std::to_string(jobs_)); }
  nlohmann::json JobVerdict() const {
    const auto text = ReadFile(job() / "verdict.json");
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json::object();
  }

  // One thread a rank everywhere: sums within a matrix product depend on their number. Then the
  // losses of three steps on hosts with so many ranks each are, bit for bit, those of as many
  // ranks here.
  void ExpectSameLosses(int slots, int stage, bool bf16, bool encrypt = false) {
    WriteHostfile(slots);
    std::vector<std::string> words = Train(stage, bf16, 3);
    if (encrypt) words.emplace_back("--encrypt");
    const ProgramResult apart = RunJob(OnHosts(words));
    ASSERT_EQ(apart.status, 0) << apart.out << apart.err;
    const std::vector<double> losses = Losses();
    ASSERT_EQ(losses.size(), 3u);
    const ProgramResult together =
        RunJob(OnThisHost(slots * options_.count, Train(stage, bf16, 3)));
    ASSERT_EQ(together.status, 0) << together.out << together.err;
    EXPECT_THAT(Losses(), ElementsAreArray(losses))
        << slots << " ranks on each host, stage " << stage << (bf16 ? ", bf16" : "");
  }

  // A job of one rank on each host that trains, and would for very long.
  std::unique_ptr<Program> Start(const std::vector<std::string>& flags = {}) {
    WriteHostfile(1);
    auto dsrun = std::make_unique<Program>(
        OnHosts(Train(0, false, 1000000), flags),
        ProgramOptions{.environment = hosts().Environment(), .working_directory = folder()});
    EXPECT_TRUE(dsrun->WaitForOutput("step 1")) << dsrun->out() << dsrun->err();
    return dsrun;
  }

 private:
  std::vector<std::string> Dsrun(const std::vector<std::string>& where,
                                 const std::vector<std::string>& flags,
                                 const std::vector<std::string>& words) {
    ++jobs_;
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device",  "cpu",         "-x",
                                        "OMP_NUM_THREADS=1", "--run_dir", job().string()};
    for (const auto* part : {&where, &flags, &words}) {
      command.insert(command.end(), part->begin(), part->end());
    }
    return command;
  }

  int jobs_ = 0;
};

TEST_F(SshTrainTest, TwoHostsOfOneRankTrainAsTwoRanksOfOneHost) {
  for (const int stage : {0, 1, 2, 3}) ExpectSameLosses(1, stage, /*bf16=*/false);
  ExpectSameLosses(1, 2, /*bf16=*/true);
  ExpectSameLosses(1, 2, /*bf16=*/false, /*encrypt=*/true);
}

TEST_F(SshTrainTest, TwoHostsOfTwoRanksTrainAsFourRanksOfOneHost) {
  for (const int stage : {0, 3}) ExpectSameLosses(2, stage, /*bf16=*/false);
  for (const int stage : {1, 3}) ExpectSameLosses(2, stage, /*bf16=*/true);
}

TEST_F(SshTrainTest, ThreeHostsOfOneRankTrainAsThreeRanksOfOneHost) {
  options_.count = 3;
  for (const int stage : {1, 2}) ExpectSameLosses(1, stage, /*bf16=*/false);
  ExpectSameLosses(1, 3, /*bf16=*/true);
}

TEST_F(SshTrainTest, AKilledRankIsTheVerdictAndNotTheOneThatMissesIt) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start();
  OnHost(1, "kill -9 $(pgrep -x dsrank)");
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 128 + SIGKILL) << result.err;
  EXPECT_EQ(JobVerdict()["rank"], 1);
  EXPECT_EQ(JobVerdict()["host"], "h1");
  for (const int host : {0, 1}) EXPECT_TRUE(BecomesEmpty(host));
}

TEST_F(SshTrainTest, AKilledDaemonIsTheVerdict) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start({"--lease_seconds", "5"});
  OnHost(1, "kill -9 $(pgrep -x dsrund-.*)");
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(JobVerdict()["host"], "h1");
  for (const int host : {0, 1}) EXPECT_TRUE(BecomesEmpty(host));
}

TEST_F(SshTrainTest, APulledCableIsTheVerdictWithinTheLease) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const auto dsrun = Start({"--lease_seconds", "5"});
  hosts().CutLink(1);
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(JobVerdict()["cause"], "host_lost");
  EXPECT_EQ(JobVerdict()["host"], "h1");
  EXPECT_TRUE(BecomesEmpty(0));
}

// /tmp is each host's own.
TEST_F(SshTrainTest, CheckpointsInAFolderThatHostsDoNotShareAreRefusedBeforeTheFirstStep) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  std::vector<std::string> words = Train(0, false, 2);
  words.insert(words.end(), {"--save_every", "1"});
  const ProgramResult result = RunJob(OnHosts(words));
  EXPECT_EQ(result.status, 6) << result.err;
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(), HasSubstr("is another folder here"));
  EXPECT_TRUE(JobVerdict()["step"].is_null());
}

TEST_F(SshTrainTest, AnInterfaceThatAHostHasNotIsRefused) {
  WriteHostfile(1);
  const ProgramResult result = RunJob(OnHosts(Train(0, false, 1), {"--interface", "nosuch0"}));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(),
              HasSubstr("no network interface or address nosuch0"));
}

}  // namespace
}  // namespace ds::testing
