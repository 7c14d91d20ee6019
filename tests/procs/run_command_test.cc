// dsrun with real daemons and real programs on this machine: what ranks get, how a job ends, what
// it leaves behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunCommandTest : public ::testing::Test {
 protected:
  // `flags`, then a shell script as the program.
  std::vector<std::string> Command(std::vector<std::string> flags,
                                   const std::string& script) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir",
                                        run().string()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", "/bin/sh", "-c", script, "program", "a b", "", "$HOME"});
    return command;
  }
  ProgramResult Run(const std::vector<std::string>& flags, const std::string& script) const {
    return RunProgram(Command(flags, script), {.working_directory = folder_.path()});
  }
  fs::path run() const { return folder_.path() / "run"; }
  std::string Content(const std::string& file) const {
    const auto text = ReadFile(run() / file);
    return text.ok() ? *text : text.status().message();
  }
  nlohmann::json Verdict() const { return nlohmann::json::parse(Content("verdict.json")); }
  std::vector<pid_t> RankPids() const {
    std::vector<pid_t> pids;
    std::istringstream lines(Content("events.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event["event"] == "rank_started") pids.push_back(event["pid"].get<pid_t>());
    }
    return pids;
  }
  void ExpectNoRankLeft() const {
    for (const pid_t pid : RankPids()) EXPECT_EQ(::kill(pid, 0), -1) << "rank process " << pid;
  }

  TemporaryFolder folder_;
};

TEST_F(RunCommandTest, EveryRankRunsAndItsOutputIsKeptAndShown) {
  const ProgramResult result = Run({"--num_gpus", "2"}, "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@localhost: out 0\n"));
  EXPECT_THAT(result.out, HasSubstr("1@localhost: out 1\n"));
  EXPECT_THAT(result.err, HasSubstr("1@localhost: err 1\n"));
  EXPECT_EQ(Content("logs/0/rank-00001.out"), "out 1\n");
  EXPECT_EQ(Content("logs/0/rank-00001.err"), "err 1\n");
  EXPECT_FALSE(fs::exists(run() / "verdict.json"));
  const auto job = nlohmann::json::parse(Content("job.json"));
  EXPECT_EQ(job["kind"], "run");
  EXPECT_EQ(job["world_size"], 2);
  EXPECT_EQ(job["argv"][4], "a b");
}

TEST_F(RunCommandTest, DistinctExitCodesAreUnique) {
  const std::vector<std::string> distinct = {"--exit_codes", "distinct"};
  EXPECT_EQ(Run(distinct, "exit 3").status, 3);
  fs::remove_all(run());
  EXPECT_EQ(Run(distinct, "exit 243").status, 240);
  EXPECT_THAT(Verdict()["proof"], HasSubstr("exited with status 243"));
  EXPECT_EQ(Verdict()["exit_code"], 240);
  fs::remove_all(run());
  const std::string dsrun = DS_BIN_DIR "/dsrun";
  EXPECT_EQ(RunProgram({dsrun, "--exit-codes=distinct", "--run_dir", run().string(), "--",
                        "/no/such/program"})
                .status,
            243);
  EXPECT_EQ(RunProgram({dsrun, "--exit_codes", "distinct", "--bogus"}).status, 242);
  EXPECT_EQ(RunProgram({dsrun, "-n", "2", "--exit-codes=distinct", "--bogus"}).status, 242);
  // This one is the program's.
  EXPECT_EQ(RunProgram({dsrun, "-qx", "A=1", "--exit_codes", "distinct", "--bogus"}).status, 242);
  EXPECT_EQ(RunProgram({dsrun, "--bogus", "x.py", "--exit_codes", "distinct"}).status, 2);
  EXPECT_EQ(RunProgram({dsrun, "--exit_codes", "distinct", "checkpoint", "list", "/no"}).status,
            246);
  EXPECT_EQ(RunProgram({dsrun, "--exit_codes", "distinct", "version"}).status, 0);
  fs::remove_all(run());
  Program program(Command(distinct, "echo runs; exec sleep 60"));
  ASSERT_TRUE(program.WaitForOutput("runs"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait().status, 247);
}

TEST_F(RunCommandTest, CountsTheRanksOfTheJob) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "hosts",
                                  "localhost slots=2\n127.0.0.1 slots=2\n127.0.0.2 slots=2\n")
                  .ok());
  const std::string hosts = (folder_.path() / "hosts").string();
  const ProgramResult result = Run({"-H", hosts, "--share_machine", "-np", "3"},
                                   "echo $RANK of $WORLD_SIZE on $GROUP_RANK of $GROUP_WORLD_SIZE");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Content("logs/0/rank-00002.out"), "2 of 3 on 1 of 2\n");
  fs::remove_all(run());
  EXPECT_EQ(Run({"-H", hosts, "--share_machine", "-n", "7"}, "true").err,
            "dsrun: -n 7: there are 6 slots\n");
  EXPECT_EQ(Run({"-n", "3"}, "exit 0").status, 0);
  EXPECT_TRUE(fs::exists(run() / "logs/0/rank-00002.out"));
}

TEST_F(RunCommandTest, ArgumentsReachTheProgramUntouched) {
  const ProgramResult result = Run({}, R"(printf '<%s>' "$@")");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Content("logs/0/rank-00000.out"), "<a b><><$HOME>");
}

TEST_F(RunCommandTest, TheEnvironmentOfARank) {
  const ProgramResult result = Run(
      {"--num_gpus", "2", "-x", "GREETING=hello world", "--master_port", "0"},
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR "
      "$TORCHELASTIC_RESTART_COUNT $GREETING; test $MASTER_PORT -gt 0; test -n \"$DSRUN_JOB_ID\"");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Content("logs/0/rank-00001.out"), "1 1 2 2 0 127.0.0.1 0 hello world\n");
}

TEST_F(RunCommandTest, TwoNamesOfThisMachineAreNodesOnlyIfItMayBeShared) {
  ASSERT_TRUE(
      WriteFileAtomically(folder_.path() / "hosts", "localhost slots=1\n127.0.0.1 slots=2\n").ok());
  const std::string hosts = (folder_.path() / "hosts").string();
  const ProgramResult refused = Run({"-H", hosts}, "echo starts");
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("localhost and 127.0.0.1 are both this machine"));
  const ProgramResult result =
      Run({"-H", hosts, "--share_machine"}, "echo $RANK $NODE_RANK $LOCAL_RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@localhost: 0 0 0\n"));
  EXPECT_THAT(result.out, HasSubstr("2@127.0.0.1: 2 1 1\n"));
}

TEST_F(RunCommandTest, TheFirstFailureStopsAllAndItsStatusArrives) {
  const ProgramResult result =
      Run({"--num_gpus", "3"}, "if [ $RANK = 1 ]; then echo why >&2; exit 7; fi; exec sleep 600");
  EXPECT_EQ(result.status, 7);
  EXPECT_THAT(result.err,
              HasSubstr("dsrun: the job failed: rank 1 on localhost ended with status 7\n"));
  const auto verdict = Verdict();
  EXPECT_EQ(verdict["cause"], "exit_code");
  EXPECT_EQ(verdict["rank"], 1);
  EXPECT_EQ(verdict["host"], "localhost");
  EXPECT_EQ(verdict["exit_code"], 7);
  EXPECT_EQ(verdict["last_lines"], nlohmann::json({"why"}));
  EXPECT_EQ(RankPids().size(), 3u);
  ExpectNoRankLeft();
}

TEST_F(RunCommandTest, ASignalBecomes128PlusItsNumber) {
  const ProgramResult result =
      Run({"--num_gpus", "2"}, "if [ $RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 600");
  EXPECT_EQ(result.status, 139);
  EXPECT_EQ(Verdict()["signal"], SIGSEGV);
  ExpectNoRankLeft();
}

TEST_F(RunCommandTest, CtrlCStopsEverythingWith130AndTermWith143) {
  for (const auto& [signal, status] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    fs::remove_all(run());
    Program program(Command({"--num_gpus", "2"}, "echo started $RANK; exec sleep 600"));
    ASSERT_TRUE(program.WaitForOutput("started 0"));
    ASSERT_TRUE(program.WaitForOutput("started 1"));
    program.Signal(signal);
    const ProgramResult result = program.Wait();
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_THAT(result.err, HasSubstr("dsrun: the job was stopped by the user\n"));
    EXPECT_EQ(Verdict()["cause"], "user_stop");
    ExpectNoRankLeft();
  }
}

TEST_F(RunCommandTest, ASecondCtrlCKillsRanksThatIgnoreTheFirst) {
  Program program(
      Command({"--grace_seconds", "600"}, "trap '' TERM; echo started; while :; do sleep 1; done"));
  ASSERT_TRUE(program.WaitForOutput("started"));
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForOutput("once more kills them at once"));
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait().status, 130);
  ExpectNoRankLeft();
}

TEST_F(RunCommandTest, StubbornRanksAreKilledAfterTheGrace) {
  const ProgramResult result =
      Run({"--num_gpus", "2", "--grace_seconds", "0.2"},
          "if [ $RANK = 0 ]; then exit 3; fi; trap '' TERM; while :; do sleep 1; done");
  EXPECT_EQ(result.status, 3);
  ExpectNoRankLeft();
}

TEST_F(RunCommandTest, AFailedJobIsRestartedAsOftenAsAskedFor) {
  const std::string script = "echo generation $DSRUN_GENERATION; exit $((2 - DSRUN_GENERATION))";
  const ProgramResult result = Run({"--max_restarts", "2"}, script);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("ended with status 2; restart 1 of 2\n"));
  EXPECT_EQ(Content("logs/0/rank-00000.out"), "generation 0\n");
  EXPECT_EQ(Content("logs/2/rank-00000.out"), "generation 2\n");
}

TEST_F(RunCommandTest, AKilledDaemonOfThisMachineIsReplaced) {
  Program program(Command({"--max_restarts", "1"},
                          "[ $DSRUN_GENERATION = 0 ] || exit 0; echo daemon $PPID; sleep 600"));
  ASSERT_TRUE(program.WaitForOutput("daemon "));
  const std::string text = program.out();
  ::kill(std::stoi(text.substr(text.find("daemon ") + 7)), SIGKILL);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("a new daemon runs on host localhost"));
  ExpectNoRankLeft();
}

TEST_F(RunCommandTest, WhenTheRestartsAreUsedUpTheLastFailureCounts) {
  const ProgramResult result = Run({"--max_restarts", "1"}, "exit $((9 - DSRUN_GENERATION))");
  EXPECT_EQ(result.status, 8);
  EXPECT_THAT(result.err, HasSubstr("dsrun: not restarted: all 1 restarts are used up\n"));
  EXPECT_EQ(Verdict()["generation"], 1);
}

TEST_F(RunCommandTest, AProgramThatIsNotThereIsRefusedByPreflight) {
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "--run_dir", run().string(), "--", "/nonexistent/program"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(Verdict()["cause"], "preflight");
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/program"));
}

TEST_F(RunCommandTest, QuietShowsOnlyTheVerdict) {
  const ProgramResult result = Run({"-q"}, "echo noise; exit 5");
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, ::testing::StartsWith("dsrun: the job failed"));
}

// Without other hosts, advice on their files would only mislead.
TEST_F(RunCommandTest, AScriptThatIsNotThereIsRefusedBeforeTheJobStarts) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "finetune.py", "").ok());
  const auto refusal = [&](const std::string& script) {
    const ProgramResult result =
        RunProgram({DS_BIN_DIR "/dsrun", "--run_dir", run().string(), "--num_gpus", "2", script},
                   {.working_directory = folder_.path()});
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_FALSE(std::filesystem::exists(run()));
    return result.err;
  };
  EXPECT_EQ(refusal("no_such.py"), "dsrun: no_such.py: No such file or directory\n");
  EXPECT_EQ(refusal("fintune.py"),
            "dsrun: fintune.py: No such file or directory; did you mean 'finetune.py'?\n");
}

TEST_F(RunCommandTest, ReportsAFullDiskForOutputOnce) {
  const ProgramResult result = RunProgram(
      {"/bin/sh", "-c", "exec \"$@\" > /dev/full", "sh", DS_BIN_DIR "/dsrun", "--run_dir",
       run().string(), "--device", "cpu", "run", "--", "/bin/sh", "-c", "echo 1; echo 2"});
  EXPECT_EQ(result.status, 0) << "the run directory has it";
  EXPECT_EQ(Content("logs/0/rank-00000.out"), "1\n2\n");
  EXPECT_EQ(result.err,
            "dsrun: console: No space left on device; the run directory has the missing output\n");
}

TEST_F(RunCommandTest, NamesThePlaceOfAFlagBeforeItsCommand) {
  const auto said_to = [](const std::vector<std::string>& words) {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun"};
    command.insert(command.end(), words.begin(), words.end());
    const ProgramResult result = RunProgram(command);
    EXPECT_EQ(result.status, 2);
    return result.err;
  };
  EXPECT_EQ(said_to({"--num_gpus", "2", "--steps=5", "train"}),
            "dsrun: --steps is a flag of 'train': it belongs after that name\n");
  EXPECT_EQ(said_to({"--model", "gpt2-demo", "train"}),  // and not "did you mean '--module'?"
            "dsrun: --model is a flag of 'train': it belongs after that name\n");
  EXPECT_EQ(said_to({"--zzzzzzzzzzz", "5", "train"}), "dsrun: unknown flag --zzzzzzzzzzz\n");
}

TEST_F(RunCommandTest, TheNativeEngineIsOnlyForPythonPrograms) {
  const std::string dsrun = DS_BIN_DIR "/dsrun";
  const std::vector<std::vector<std::string>> refused = {
      {"train"},         {"train", "--steps", "1"}, {"bench", "comm"},
      {"plan", "train"}, {"plan", "/bin/true"},     {"run", "--", "/bin/true"}};
  for (const std::vector<std::string>& words : refused) {
    std::vector<std::string> command = {dsrun, "--engine", "native", "--run_dir", run().string()};
    command.insert(command.end(), words.begin(), words.end());
    const ProgramResult result = RunProgram(command, {.working_directory = folder_.path()});
    EXPECT_EQ(result.status, 2) << words.back();
    EXPECT_THAT(result.err, HasSubstr("dsrun: --engine native is for Python programs"));
    EXPECT_FALSE(fs::exists(run())) << words.back();
  }
  EXPECT_THAT(RunProgram({dsrun, "--engine", "native", "check"}).err,
              HasSubstr("--engine is not valid before 'check'"));
}

TEST_F(RunCommandTest, PythonScriptsGetTheirInterpreterAndLocalRank) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "train.py", "").ok());
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "--pass_local_rank", "--run_dir", run().string(), "--device",
                  "cpu", "--num_gpus", "2", "--python", "/bin/echo", "train.py", "--lr", "3e-4"},
                 {.working_directory = folder_.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Content("logs/0/rank-00001.out"), "-u train.py --local_rank=1 --lr 3e-4\n");
}

}  // namespace
}  // namespace ds::testing
