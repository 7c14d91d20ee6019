// Signals to dsrun, and what is left when it ends in ways it did not choose.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/terminal.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SignalsTest : public ::testing::Test {
 protected:
  std::vector<std::string> Command(const std::string& run, int ranks,
                                   const std::vector<std::string>& program) const {
    std::vector<std::string> command = {
        DS_BIN_DIR "/dsrun", "--device",           "cpu",        "--grace_seconds",     "1",
        "--run_dir",         RunDir(run).string(), "--num_gpus", std::to_string(ranks), "--"};
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }
  static std::vector<std::string> Shell(const std::string& script) {
    return {"/bin/sh", "-c", script};
  }
  // The word behind `label` in a text.
  static std::string TextAfter(const std::string& text, const std::string& label) {
    std::string word;
    std::istringstream(text.substr(text.find(label) + label.size())) >> word;
    return word;
  }
  // Says so and waits to be ended.
  static std::vector<std::string> Waiting() { return Shell("echo ready $RANK; exec sleep 600"); }
  fs::path RunDir(const std::string& run) const { return folder_.path() / run; }
  nlohmann::json Verdict(const std::string& run) const {
    return nlohmann::json::parse(*ReadFile(RunDir(run) / "verdict.json"));
  }
  std::vector<pid_t> RankPids(const std::string& run) const {
    std::vector<pid_t> pids;
    std::istringstream lines(*ReadFile(RunDir(run) / "events.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event["event"] == "rank_started") pids.push_back(event["pid"].get<pid_t>());
    }
    return pids;
  }
  // The process that runs the job: it ends after its daemons.
  UniqueFd OpenAgent(const std::string& run) const {
    const auto address = nlohmann::json::parse(*ReadFile(RunDir(run) / "agent.json"));
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, address["pid"].get<pid_t>(), 0)));
  }
  // Reads a line from a FIFO when a process of the job has written one.
  static std::string AwaitLine(const fs::path& fifo) {
    std::string line;
    std::ifstream file(fifo);
    std::getline(file, line);
    return line;
  }
  // The private folders of daemons that dsrun processes with this $XDG_RUNTIME_DIR have made.
  std::set<std::string> DaemonFolders() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("dsrun-") && name != "dsrun-jobs") names.insert(name);
    }
    return names;
  }

  TemporaryFolder folder_;
};

// It hears of no stop.
TEST_F(SignalsTest, ThreeSignalsEndAJobWithAStoppedDaemon) {
  Program program(Command("run", 1, Shell("echo daemon $PPID; exec sleep 600")));
  ASSERT_TRUE(program.WaitForOutput("daemon "));
  ASSERT_TRUE(program.WaitForOutput("\n"));
  const std::string pid = TextAfter(program.out(), "daemon ");
  ::kill(std::stoi(pid), SIGSTOP);
  program.Signal(SIGTERM);
  ASSERT_TRUE(program.WaitForOutput("stopping every rank"));
  program.Signal(SIGTERM);
  ASSERT_TRUE(program.WaitForOutput("killing every rank"));
  ASSERT_TRUE(program.WaitForOutput("waiting for dsrund, process " + pid));
  program.Signal(SIGTERM);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the last output of its ranks may be missing"));
  EXPECT_EQ(Verdict("run")["cause"], "user_stop");
  for (const pid_t rank : RankPids("run")) EXPECT_NE(::kill(rank, 0), 0);
}

// One rank fails, the other wants to save something first, and is done when it may go on.
class FailureGraceTest : public SignalsTest {
 protected:
  FailureGraceTest() { EXPECT_EQ(::mkfifo(go_on_.c_str(), 0600), 0); }

  // Of the first generation rank 0 fails as soon as rank 1 saves when it is stopped. Nobody in the
  // test waits for the end of the grace.
  std::vector<std::string> Failing(const std::string& saving) const {
    const std::string ready = (folder_.path() / "ready").string();
    std::vector<std::string> command =
        Command("run", 2,
                Shell("case $DSRUN_GENERATION$RANK in"
                      "  00) until [ -e '" +
                      ready +
                      "' ]; do sleep 0.05; done; exit 7;;"
                      "  ?0) trap 'exit 0' TERM;;"
                      "  ?1) trap '" +
                      saving + "' TERM; : >'" + ready +
                      "';;"
                      "esac; echo ready $DSRUN_GENERATION $RANK; while :; do sleep 0.05; done"));
    const auto program = std::find(command.begin(), command.end(), "--");
    command.insert(program, {"--grace_seconds", "600", "--max_restarts", "2"});
    return command;
  }
  void LetGoOn() const {
    ASSERT_TRUE(WriteAll(UniqueFd(::open(go_on_.c_str(), O_WRONLY)).get(), "go\n", "fifo").ok());
  }

  const std::string go_on_ = (folder_.path() / "go_on").string();
  const std::string saving_ = "echo saving; read go <" + go_on_ + "; echo saved; exit 0";
};

TEST_F(FailureGraceTest, AStopForbidsARestartAndKeepsTheGrace) {
  Program program(Failing(saving_));
  ASSERT_TRUE(program.WaitForOutput("saving"));
  program.Signal(SIGTERM);
  ASSERT_TRUE(program.WaitForOutput("every rank is being stopped already; once more kills them"));
  LetGoOn();
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_THAT(result.out, HasSubstr("saved"));
  EXPECT_THAT(result.err, HasSubstr("not restarted: the user stopped the job"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("restart 1 of 2")));
  EXPECT_EQ(Verdict("run")["cause"], "exit_code");
}

TEST_F(FailureGraceTest, ASecondStopEndsTheGrace) {
  Program program(Failing(saving_));
  ASSERT_TRUE(program.WaitForOutput("saving"));
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForOutput("being stopped already"));
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForOutput("killing every rank"));
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("restart 1 of 2")));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("saved")));
}

// Its daemon has a generation that failed behind it, and is well.
TEST_F(FailureGraceTest, TheFirstStopOfALaterGenerationIsAFirstOne) {
  Program program(Failing("[ $DSRUN_GENERATION = 0 ] && exit 0; " + saving_));
  for (const char* text : {"restart 1 of 2", "ready 1 0", "ready 1 1"}) {
    ASSERT_TRUE(program.WaitForOutput(text));
  }
  program.Signal(SIGINT);
  for (const char* text : {"stopping every rank; once more", "saving"}) {
    ASSERT_TRUE(program.WaitForOutput(text));
  }
  LetGoOn();
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(result.out, HasSubstr("saved"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("killed")));
  EXPECT_EQ(Verdict("run")["cause"], "user_stop");
}

// It has said that it is ready, and answers nothing.
TEST_F(SignalsTest, AStopEndsAJobWithADaemonThatHangsBeforeItsRanks) {
  const fs::path bin = folder_.path() / "bin";
  fs::create_directory(bin);
  fs::copy(DS_BIN_DIR "/dsrun", bin / "dsrun");
  const std::string ready = "'" + (bin / "ready").string() + "'";
  const std::string said = "'" + (bin / "said").string() + "'";
  ASSERT_EQ(::mkfifo((bin / "said").c_str(), 0600), 0);
  // What stops dsrund is no child of the guardian's, which is this script's process.
  const std::string script =
      "#!/bin/sh\nmkfifo " + ready + "\n( ( read line <" + ready +
      "\nread daemon rest </proc/$$/task/$$/children\nkill -STOP $daemon\n"
      // dsrun closes the pipe when it has read the line: only then the start is behind it.
      "echo \"$line\" >&5\nyes >&5 2>/dev/null\nexec 5>&-\necho $daemon >" +
      said +
      " ) & )\n"
      "exec '" DS_BIN_DIR "/dsrund' \"$@\" 5>" +
      ready + "\n";
  ASSERT_TRUE(WriteFileAtomically((bin / "dsrund").string(), script).ok());
  fs::permissions(bin / "dsrund", fs::perms::owner_all);
  std::vector<std::string> command = Command("run", 1, Waiting());
  command.front() = (bin / "dsrun").string();
  Program program(command);
  const std::string daemon = AwaitLine(bin / "said");
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForOutput("stopping the job"));
  ASSERT_TRUE(program.WaitForOutput("waiting for dsrund, process "));
  EXPECT_EQ(Verdict("run")["cause"], "user_stop");
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_NE(::kill(std::stoi(daemon), 0), 0);
}

// Who presses Ctrl-C three times in a row kills ranks, and not what they have written before.
TEST_F(SignalsTest, ThreeSignalsAtOnceLoseNoLine) {
  constexpr int kLines = 200'000;
  const std::string written = (folder_.path() / "written").string();
  ASSERT_EQ(::mkfifo(written.c_str(), 0600), 0);
  Program program(
      Command("run", 1,
              Shell("echo ready; read go <'" + written + "'; seq " + std::to_string(kLines) +
                    "; echo done >'" + written + "'; exec sleep 600")));
  ASSERT_TRUE(program.WaitForOutput("ready\n"));
  program.Signal(SIGSTOP);  // from now on dsrund holds what the rank writes
  ASSERT_TRUE(WriteAll(UniqueFd(::open(written.c_str(), O_WRONLY)).get(), "go\n", "fifo").ok());
  EXPECT_EQ(*ReadFile(written), "done\n");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCONT}) program.Signal(signal);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(Verdict("run")["cause"], "user_stop");
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("missing")));
  const std::string log = *ReadFile(RunDir("run") / "logs/0/rank-00000.out");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), kLines + 1);
}

// A host that cannot be used ends the start of the others; this machine's daemon does not follow.
TEST_F(SignalsTest, ASignalEndsADaemonThatOutlivesAFailedStart) {
  const std::string mark = "DSRUN_TEST_MARK=" + folder_.path().string();
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), any, size), 0);
  ASSERT_EQ(::getsockname(listener.get(), any, &size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const std::string hosts = (folder_.path() / "hosts").string();
  ASSERT_TRUE(WriteFileAtomically(hosts, "localhost slots=1\nfar slots=1 address=127.0.0.1 port=" +
                                             std::to_string(ntohs(address.sin_port)) + "\n")
                  .ok());
  std::vector<std::string> command = Command("run", 1, Waiting());
  command.insert(command.begin() + 1, {"--hostfile", hosts});
  Program program(command, {.environment = {mark}});
  UniqueFd connection(::accept(listener.get(), nullptr, nullptr));
  pid_t daemon = 0;
  for (const pid_t pid : ProcessesWith(mark)) {
    if (*ReadFile("/proc/" + std::to_string(pid) + "/comm") == "dsrund\n") daemon = pid;
  }
  ASSERT_GT(daemon, 0);
  ::kill(daemon, SIGSTOP);
  connection.Reset();
  listener.Reset();
  ASSERT_TRUE(program.WaitForOutput("waiting for dsrund, process " + std::to_string(daemon)));
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait().status, 3);
  EXPECT_EQ(Verdict("run")["cause"], "preflight");
  EXPECT_EQ(ProcessesWith(mark), std::vector<pid_t>());
}

// As on a disk that does not answer: no ready line comes, and nothing but SIGKILL ends it.
TEST_F(SignalsTest, ASignalEndsAStartThatHangs) {
  const fs::path programs = folder_.path() / "bin";
  fs::create_directory(programs);
  fs::copy_file(DS_BIN_DIR "/dsrun", programs / "dsrun");
  const fs::path said = programs / "said";
  ASSERT_EQ(::mkfifo(said.c_str(), 0600), 0);
  ASSERT_TRUE(WriteFileAtomically(programs / "dsrund",
                                  "#!/bin/sh\n"
                                  "sh -c 'echo hangs >" +
                                      said.string() +
                                      "; kill -STOP $$; :' &\n"
                                      "wait\n",
                                  0755)
                  .ok());
  const std::string mark = "DSRUN_TEST_MARK=" + folder_.path().string();
  std::vector<std::string> command = Command("run", 1, Waiting());
  command[0] = (programs / "dsrun").string();
  Program program(command, {.environment = {mark}});
  ASSERT_EQ(AwaitLine(said), "hangs");
  const auto signalled = std::chrono::steady_clock::now();
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait().status, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - signalled, std::chrono::seconds(9))
      << "the patience with a dsrund that is not ready is 10 s";
  EXPECT_EQ(Verdict("run")["cause"], "user_stop");
  EXPECT_EQ(ProcessesWith(mark), std::vector<pid_t>());
}

TEST_F(SignalsTest, SigusrGoesToEveryRankButNotToItsChildren) {
  // A child that has no handler would die of the signal.
  Program program(Command("run", 2, Shell(R"(
      sleep 600 & child=$!
      trap 'kill -0 $child && echo usr1 $RANK' USR1
      trap 'kill $child; echo usr2 $RANK; exit 0' USR2
      echo ready $RANK
      while :; do wait; done)")));
  for (const char* text : {"ready 0", "ready 1"}) ASSERT_TRUE(program.WaitForOutput(text));
  program.Signal(SIGUSR1);
  for (const char* text : {"usr1 0", "usr1 1"}) ASSERT_TRUE(program.WaitForOutput(text));
  program.Signal(SIGUSR2);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* text : {"usr2 0", "usr2 1"}) EXPECT_THAT(result.out, HasSubstr(text));
}

TEST_F(SignalsTest, AHangupStopsTheJobAndAClosedTerminalDoesNotMatter) {
  Terminal terminal;
  Program program(Command("run", 2, Waiting()), {.input_fd = terminal.fd(), .owns_terminal = true});
  ASSERT_TRUE(program.WaitForOutput("ready 1"));
  terminal.Close();
  EXPECT_EQ(program.Wait().status, 129);
  EXPECT_EQ(Verdict("run")["cause"], "user_stop");
  EXPECT_EQ(Verdict("run")["signal"], SIGHUP);
  for (const pid_t pid : RankPids("run")) EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(SignalsTest, UnderNohupAHangupIsNothing) {
  Program program(Command("run", 1, Waiting()), {.ignored_signals = {SIGHUP}});
  ASSERT_TRUE(program.WaitForOutput("ready 0"));
  program.Signal(SIGHUP);  // were it taken, it would be before the other
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait().status, 143);
}

TEST_F(SignalsTest, OfTwoJobsOnAHostOneNeverTouchesTheOther) {
  Program other(Command("other", 2,
                        Shell("trap 'exit 0' USR1; echo ready $RANK; "
                              "while :; do sleep 0.05; done")));
  for (const char* text : {"ready 0", "ready 1"}) ASSERT_TRUE(other.WaitForOutput(text));
  {
    Program stopped(Command("stopped", 2, Waiting()));
    ASSERT_TRUE(stopped.WaitForOutput("ready 1"));
    stopped.Signal(SIGINT);
    EXPECT_EQ(stopped.Wait().status, 130);
  }
  EXPECT_EQ(RunProgram(Command("failed", 2, Shell("exit 7"))).status, 7);
  Program killed(Command("killed", 2, Waiting()));
  ASSERT_TRUE(killed.WaitForOutput("ready 1"));
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait().status, 137);
  other.Signal(SIGUSR1);
  EXPECT_EQ(other.Wait().status, 0);
}

TEST_F(SignalsTest, SigkillOfDsrunLeavesNothing) {
  // Each rank leaves a grandchild in a session of its own.
  Program program(Command("run", 2,
                          Shell("setsid sleep 600 >/dev/null 2>&1 & "
                                "echo descendant $!; trap '' TERM; wait; sleep 600")),
                  {.environment = {"XDG_RUNTIME_DIR=" + folder_.path().string()}});
  ASSERT_TRUE(program.WaitForOutput("0@localhost: descendant"));
  ASSERT_TRUE(program.WaitForOutput("1@localhost: descendant"));
  EXPECT_EQ(DaemonFolders().size(), 1U);
  const UniqueFd agent = OpenAgent("run");
  program.Signal(SIGKILL);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 137);
  pollfd end{agent.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 60'000), 1) << "the agent lives on";
  std::vector<pid_t> pids = RankPids("run");
  for (std::size_t at = 0; (at = result.out.find("descendant ", at)) != std::string::npos;) {
    at += 11;
    pids.push_back(std::stoi(result.out.substr(at)));
  }
  EXPECT_EQ(pids.size(), 4U) << result.out;
  for (const pid_t pid : pids) EXPECT_NE(::kill(pid, 0), 0) << pid;
  EXPECT_TRUE(DaemonFolders().empty());
}

}  // namespace
}  // namespace ds::testing
