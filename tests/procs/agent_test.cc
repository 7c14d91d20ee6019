// The agent of a job and its fronts: a job that outlives its terminal, and the commands for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/process_stat.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/pipe.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Each rank prints "ready", and ends when the file "go" exists.
constexpr const char* kAwaitGo =
    "echo ready $RANK; until [ -e \"$0\" ]; do sleep 0.05; done; echo went $RANK";

constexpr const char* kTakenOver =
    "dsrun: the agent of the job was ended by signal 9; another one has taken over, and the ranks "
    "go on; output that was on its way here is in the run directory only\n";

int CountOf(const std::string& what, const std::string& text) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

class AgentTest : public ::testing::Test {
 protected:
  std::vector<std::string> Job(const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device",   "cpu", "--run_dir",
                                        run().string(),      "--num_gpus", "2"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", "/bin/sh", "-c", kAwaitGo, go().string()});
    return command;
  }
  // Each rank prints "told" when it is to stop, and goes on.
  std::vector<std::string> StoppableJob() const {
    std::vector<std::string> command = Job({"--grace_seconds", "600"});
    command[command.size() - 2] = "trap 'echo told $RANK' TERM; " + std::string(kAwaitGo);
    return command;
  }
  ProgramOptions Options() const {
    return {.environment = {"XDG_RUNTIME_DIR=" + runtime_.path().string()},
            .working_directory = folder_.path()};
  }
  ProgramResult Dsrun(std::vector<std::string> words) const {
    words.insert(words.begin(), DS_BIN_DIR "/dsrun");
    return RunProgram(words, Options());
  }
  void Go() const { EXPECT_TRUE(WriteFileAtomically(go(), "").ok()); }
  nlohmann::json Status() const {
    const ProgramResult result = Dsrun({"status", "--json", run().string()});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
  int AgentPid() const {
    const auto text = ReadFile(run() / "agent.json");
    EXPECT_TRUE(text.ok()) << text.status().message();
    return text.ok() ? nlohmann::json::parse(*text)["pid"].get<int>() : -1;
  }
  fs::path run() const { return folder_.path() / "run"; }
  fs::path go() const { return folder_.path() / "go"; }

  TemporaryFolder folder_;
  TemporaryFolder runtime_;
};

TEST_F(AgentTest, ADetachedJobGoesOnAndCanBeAttached) {
  const ProgramResult started = RunProgram(Job({"--detach"}), Options());
  EXPECT_EQ(started.status, 0) << started.err;
  EXPECT_THAT(started.err, HasSubstr("detached: the job goes on; `dsrun attach run` shows it"));
  EXPECT_EQ(Status()["state"], "running");
  Program attached({DS_BIN_DIR "/dsrun", "attach", run().string()}, Options());
  ASSERT_TRUE(attached.WaitForOutput(
      "attached to the job of run: 2 ranks on 1 host, running; Ctrl-C stops it"));
  Go();
  const ProgramResult result = attached.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(*ReadFile(run() / "logs/0/rank-00001.out"), "ready 1\nwent 1\n");
  EXPECT_EQ(Status()["state"], "ended");
  EXPECT_FALSE(fs::exists(run() / "agent.json"));
  EXPECT_FALSE(fs::exists(run() / "agent.sock"));
}

TEST_F(AgentTest, DetachLetsTheFirstFrontGo) {
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  EXPECT_EQ(Dsrun({"detach", run().string()}).status, 0);
  EXPECT_EQ(front.Wait().status, 0);
  EXPECT_EQ(Status()["state"], "running");
  const ProgramResult stopped = Dsrun({"stop", run().string()});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "the job was stopped by the user\n");
  EXPECT_EQ(Status()["verdict"]["cause"], "user_stop");
}

TEST_F(AgentTest, AKilledFrontEndsItsJob) {
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  Program attached({DS_BIN_DIR "/dsrun", "attach", run().string()}, Options());
  ASSERT_TRUE(attached.WaitForOutput("attached to the job"));
  front.Signal(SIGKILL);
  EXPECT_EQ(front.Wait().status, 137);
  EXPECT_EQ(attached.Wait().status, 129);
}

TEST_F(AgentTest, AStoppedFrontDelaysNoRank) {
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  front.Signal(SIGSTOP);
  Program attached({DS_BIN_DIR "/dsrun", "attach", run().string()}, Options());
  ASSERT_TRUE(attached.WaitForOutput("attached to the job"));
  Go();
  EXPECT_EQ(attached.Wait().status, 0);
  front.Signal(SIGCONT);
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("went 0\n"), HasSubstr("went 1\n")));
}

// The second signal ends the ranks although the agent does nothing.
TEST_F(AgentTest, ASecondSignalEndsAStoppedAgent) {
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  const nlohmann::json ranks = Status()["ranks"];
  ASSERT_EQ(ranks.size(), 2U);
  std::vector<UniqueFd> processes;
  for (const nlohmann::json& rank : ranks) {
    processes.emplace_back(
        static_cast<int>(::syscall(SYS_pidfd_open, rank["pid"].get<pid_t>(), 0)));
    ASSERT_TRUE(processes.back().valid());
  }
  ASSERT_EQ(::kill(AgentPid(), SIGSTOP), 0);
  front.Signal(SIGINT);
  front.Signal(SIGTERM);
  const ProgramResult result = front.Wait();
  EXPECT_THAT(result.status, ::testing::AnyOf(130, 143));
  EXPECT_THAT(result.err, HasSubstr("forced end"));
  for (const UniqueFd& process : processes) {
    pollfd end{process.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, 60'000), 1) << "a rank lives on";
  }
}

// Ranks print while agents are killed, and no log loses or doubles a line. Their lines differ, else
// the console would show them as one. What a front had not
// received when its agent was killed is in the logs only, so these show the progress here.
TEST_F(AgentTest, AKilledAgentIsReplacedAndNoLineIsLost) {
  constexpr int kLines = 20'000;
  constexpr int kKills = 3;
  std::vector<std::string> command = Job({});
  command[command.size() - 2] = "i=0; while [ $i -lt " + std::to_string(kLines) +
                                " ]; do echo line $i of $RANK; i=$((i+1)); done; echo ready $RANK; "
                                "until [ -e \"$0\" ]; do sleep 0.05; done; echo went $RANK";
  Program front(command, Options());
  ASSERT_TRUE(front.WaitForOutput("line 0 of 0\n"));
  Program logs({DS_BIN_DIR "/dsrun", "logs", "-f", "--rank", "0", run().string()}, Options());
  std::string told;
  for (int kill = 1; kill <= kKills; ++kill) {
    ASSERT_TRUE(logs.WaitForOutput("line " + std::to_string(kLines / 10 * kill) + " of 0\n"));
    ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
    told += kTakenOver;
    ASSERT_TRUE(front.WaitForOutput(told)) << front.err();
  }
  EXPECT_EQ(Status()["state"], "running");
  ASSERT_TRUE(logs.WaitForOutput("ready 0\n"));
  Go();
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    std::string expected;
    for (int i = 0; i < kLines; ++i) expected += "line " + std::to_string(i) + " of " + rank + "\n";
    EXPECT_EQ(*ReadFile(run() / ("logs/0/rank-0000" + rank + ".out")),
              expected + "ready " + rank + "\nwent " + rank + "\n");
  }
  EXPECT_FALSE(fs::exists(run() / "agent.log"));
  const std::string events = *ReadFile(run() / "events.jsonl");
  for (const std::string event : {"rank_started", "rank_exited"}) {
    EXPECT_EQ(CountOf("\"" + event + "\"", events), 2) << events;
  }
}

TEST_F(AgentTest, AKilledAgentOfADetachedJobIsReplaced) {
  ASSERT_EQ(RunProgram(Job({"--detach"}), Options()).status, 0);
  Program attached({DS_BIN_DIR "/dsrun", "attach", run().string()}, Options());
  ASSERT_TRUE(attached.WaitForOutput("attached to the job"));
  ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
  ASSERT_TRUE(attached.WaitForOutput("another one has taken over"));
  EXPECT_EQ(Status()["state"], "running");
  Go();
  const ProgramResult result = attached.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("went 0\n"), HasSubstr("went 1\n")));
}

TEST_F(AgentTest, AStopGoesOnAfterTheAgentWasKilled) {
  Program front(StoppableJob(), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 0"));
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  front.Signal(SIGINT);
  ASSERT_TRUE(front.WaitForOutput("told 0"));
  ASSERT_TRUE(front.WaitForOutput("told 1"));
  ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
  ASSERT_TRUE(front.WaitForOutput("another one has taken over"));
  Go();
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_EQ(Status()["verdict"]["cause"], "user_stop");
}

TEST_F(AgentTest, ASignalToTheAgentIsNotForgottenWhenItIsKilled) {
  Program front(StoppableJob(), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 0"));
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  ASSERT_EQ(::kill(AgentPid(), SIGTERM), 0);
  ASSERT_TRUE(front.WaitForOutput("told 0"));
  ASSERT_TRUE(front.WaitForOutput("told 1"));
  ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
  ASSERT_TRUE(front.WaitForOutput("another one has taken over"));
  Go();
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 143) << result.err;
  EXPECT_EQ(Status()["verdict"]["cause"], "user_stop");
}

TEST_F(AgentTest, StandardInputGoesOnAfterTheAgentWasKilled) {
  std::vector<std::string> command = Job({});
  command[command.size() - 2] = "echo ready $RANK; [ $RANK = 1 ] || cat";
  Pipe input = *MakePipe();
  ProgramOptions options = Options();
  options.input_fd = input.read.get();
  Program front(command, options);
  ASSERT_TRUE(WriteAll(input.write.get(), "first\n", "input").ok());
  ASSERT_TRUE(front.WaitForOutput("first\n"));
  ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
  ASSERT_TRUE(front.WaitForOutput("another one has taken over"));
  ASSERT_TRUE(WriteAll(input.write.get(), "second\n", "input").ok());
  input.write.Reset();
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(*ReadFile(run() / "logs/0/rank-00000.out"), "ready 0\nfirst\nsecond\n");
}

// Both are of one machine: what ends one of them may end the other.
TEST_F(AgentTest, AnAgentThatIsKilledWithADaemonRestartsTheJob) {
  std::vector<std::string> command = Job({"--max_restarts", "1"});
  command[command.size() - 2] =
      "echo ready $RANK $DSRUN_GENERATION; [ $DSRUN_GENERATION = 1 ] || "
      "exec sleep 600";
  Program front(command, Options());
  ASSERT_TRUE(front.WaitForOutput("ready 0 0"));
  ASSERT_TRUE(front.WaitForOutput("ready 1 0"));
  const pid_t rank = Status()["ranks"][0]["pid"].get<pid_t>();
  const pid_t daemon = ReadProcessStat(rank)->parent;
  const int agent = AgentPid();
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);  // else it may see the end of the daemon
  ASSERT_EQ(::kill(daemon, SIGKILL), 0);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("ready 0 1"), HasSubstr("ready 1 1")));
}

// The agent is killed before it has read the signal.
TEST_F(AgentTest, AStopThatAKilledAgentHasNotReceivedComesAgain) {
  Program front(StoppableJob(), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 0"));
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  const int agent = AgentPid();
  ASSERT_EQ(::kill(agent, SIGSTOP), 0);
  front.Signal(SIGTERM);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  ASSERT_TRUE(front.WaitForOutput("told 0")) << front.err();
  ASSERT_TRUE(front.WaitForOutput("told 1")) << front.err();
  front.Signal(SIGTERM);
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 143) << result.err;
  EXPECT_EQ(Status()["verdict"]["cause"], "user_stop");
}

TEST_F(AgentTest, AnAgentThatIsKilledWithItsGuardianIsReported) {
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  const int agent = AgentPid();
  ASSERT_EQ(::kill(ReadProcessStat(agent)->parent, SIGKILL), 0);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const ProgramResult result = front.Wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("the agent of the job has ended without an outcome: process"));
  EXPECT_EQ(Status()["verdict"]["cause"], "internal");
  EXPECT_EQ(Dsrun({"ps"}).out, "no job of yours runs on this machine\n");
}

TEST_F(AgentTest, PsListsTheJobsOfThisUser) {
  EXPECT_EQ(Dsrun({"ps"}).out, "no job of yours runs on this machine\n");
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  const nlohmann::json jobs = nlohmann::json::parse(Dsrun({"ps", "--json"}).out);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0]["run_directory"], run().string());
  EXPECT_EQ(jobs[0]["world_size"], 2);
  EXPECT_THAT(Dsrun({"ps"}).out, HasSubstr("running"));
  EXPECT_THAT(Dsrun({"status"}).out, HasSubstr("running")) << "the only job needs no name";
  Go();
  EXPECT_EQ(front.Wait().status, 0);
  EXPECT_EQ(Dsrun({"ps", "--json"}).out, "[]\n");
}

TEST_F(AgentTest, LogsFollowsTheRanks) {
  Program front(Job({}), Options());
  ASSERT_TRUE(front.WaitForOutput("ready 1"));
  Program logs({DS_BIN_DIR "/dsrun", "logs", "-f", "--rank", "1", run().string()}, Options());
  EXPECT_TRUE(logs.WaitForOutput("ready 1\n"));
  Go();
  const ProgramResult result = logs.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "ready 1\nwent 1\n");
  EXPECT_EQ(front.Wait().status, 0);
  EXPECT_EQ(Dsrun({"logs", run().string()}).out, "0: ready 0\n0: went 0\n1: ready 1\n1: went 1\n");
}

TEST_F(AgentTest, EventsShowWhatHappened) {
  Go();
  ASSERT_EQ(RunProgram(Job({}), Options()).status, 0);
  EXPECT_THAT(Dsrun({"events", run().string()}).out,
              AllOf(HasSubstr("rank 0  rank_started  pid="), HasSubstr("rank 1  rank_exited")));
  EXPECT_EQ(Dsrun({"events", "--json", run().string()}).out, *ReadFile(run() / "events.jsonl"));
}

TEST_F(AgentTest, CommandsForAJobThatDoesNotRunSaySo) {
  Go();
  ASSERT_EQ(RunProgram(Job({}), Options()).status, 0);
  for (const std::string command : {"attach", "stop", "detach"}) {
    const ProgramResult result = Dsrun({command, run().string()});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("does not run")) << command;
  }
  EXPECT_THAT(Dsrun({"status", "nowhere"}).err, HasSubstr("nowhere is neither a run folder nor"));
  EXPECT_THAT(Dsrun({"stop"}).err, HasSubstr("no job of yours runs on this machine"));
}

}  // namespace
}  // namespace ds::testing
