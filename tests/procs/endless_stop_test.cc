// Stops that something does not let end: dsrun ends all the same, and says what it was.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// From the second signal on; more than the 5 s that are promised, for a busy machine.
constexpr std::chrono::seconds kAMoment{9};

class EndlessStopTest : public ::testing::Test {
 protected:
  std::vector<std::string> Command(const std::vector<std::string>& program) const {
    std::vector<std::string> command = {
        DS_BIN_DIR "/dsrun", "--device", "cpu", "--grace_seconds", "1", "--run_dir", run_.string(),
        "--num_gpus",        "1",        "--"};
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }
  static UniqueFd OpenProcess(pid_t pid) {
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }
  static bool AwaitEnd(const UniqueFd& process) {
    pollfd end{process.get(), POLLIN, 0};
    return ::poll(&end, 1, 60'000) == 1;
  }
  static pid_t NumberAfter(const std::string& words, const std::string& text) {
    return std::stoi(text.substr(text.find(words) + words.size()));
  }
  // Until no signal to the process waits any more, so that the next is another one.
  static void AwaitTaken(pid_t pid) {
    const auto pending = [pid] {
      const StatusOr<std::string> text = ReadFile("/proc/" + std::to_string(pid) + "/status");
      return text.ok() && text->find("\nShdPnd:\t0000000000000000\n") == std::string::npos;
    };
    while (pending()) std::this_thread::yield();
  }
  // Two signals, the second when the first has been understood.
  ProgramResult StopTwice(Program& program) {
    program.Signal(SIGTERM);
    EXPECT_TRUE(program.WaitForOutput("stopping every rank"));
    const auto second = std::chrono::steady_clock::now();
    program.Signal(SIGTERM);
    ProgramResult result = program.Wait();
    EXPECT_LT(std::chrono::steady_clock::now() - second, kAMoment);
    EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the job was stopped by the user"));
    return result;
  }
  nlohmann::json ReadVerdict() const {
    const StatusOr<std::string> text = ReadFile(run_ / "verdict.json");
    EXPECT_TRUE(text.ok()) << text.status().message();
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json::object();
  }

  TemporaryFolder folder_;
  const fs::path run_ = folder_.path() / "run";
};

// A log is a pipe that is full: whoever writes it waits for ever, as on a file system that hangs.
TEST_F(EndlessStopTest, ASecondSignalEndsAJobWithAHangingRunDirectory) {
  const fs::path log = run_ / "logs/0/rank-00000.out";
  fs::create_directories(log.parent_path());
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const UniqueFd reader(::open(log.c_str(), O_RDWR | O_CLOEXEC));
  const fs::path written = folder_.path() / "written";
  ASSERT_EQ(::mkfifo(written.c_str(), 0600), 0);
  // The log takes less than that.
  Program program(Command(
      {"/bin/sh", "-c", "seq 100000; echo written >'" + written.string() + "'; exec sleep 600"}));
  EXPECT_EQ(*ReadFile(written), "written\n");
  std::string pid;
  while (pid.empty()) {
    const StatusOr<std::string> text = ReadFile(run_ / "events.jsonl");
    std::istringstream events(text.ok() ? *text : "");
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (event.is_object() && event["event"] == "rank_started") pid = event["pid"].dump();
    }
  }
  const UniqueFd rank = OpenProcess(std::stoi(pid));
  // Nothing tells that a pipe has become full; what is written to it is several times as much.
  for (pollfd full{reader.get(), POLLOUT, 0}; ::poll(&full, 1, 0) != 0;) ::sched_yield();
  const ProgramResult result = StopTwice(program);
  EXPECT_THAT(result.err, HasSubstr("verdict.json is not written"));
  EXPECT_TRUE(AwaitEnd(rank)) << "the rank lives on";
}

TEST_F(EndlessStopTest, ASecondSignalEndsTheRanksOfADaemonThatHasBeenStopped) {
  Program program(Command({"/bin/sh", "-c", "echo pid $$ of $PPID .; exec sleep 600"}));
  ASSERT_TRUE(program.WaitForOutput(" .\n"));
  const UniqueFd rank = OpenProcess(NumberAfter("pid ", program.out()));
  const pid_t daemon = NumberAfter("of ", program.out());
  ASSERT_EQ(::kill(daemon, SIGSTOP), 0);
  StopTwice(program);
  EXPECT_EQ(ReadVerdict().value("cause", ""), "user_stop");
  EXPECT_TRUE(AwaitEnd(rank)) << "the rank lives on";
  if (HasFailure()) ::kill(daemon, SIGKILL);
}

// This machine's daemon is asked and graded like any other.
TEST_F(EndlessStopTest, ADaemonThatHasBeenStoppedIsLostAndEndsTheJob) {
  std::vector<std::string> command =
      Command({"/bin/sh", "-c", "echo pid $$ of $PPID .; exec sleep 600"});
  command.insert(command.end() - 4, {"--lease_seconds", "3"});
  Program program(command);
  ASSERT_TRUE(program.WaitForOutput(" .\n")) << program.err();
  const UniqueFd rank = OpenProcess(NumberAfter("pid ", program.out()));
  const pid_t daemon = NumberAfter("of ", program.out());
  ASSERT_EQ(::kill(daemon, SIGSTOP), 0);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_EQ(ReadVerdict().value("cause", ""), "daemon_lost");
  EXPECT_TRUE(AwaitEnd(rank)) << "the rank lives on";
  if (HasFailure()) ::kill(daemon, SIGKILL);
}

// An older part of the rank's log, which the verdict quotes, is a pipe that nobody writes: to open
// it takes for ever.
class EndlessRecordTest : public EndlessStopTest {
 protected:
  EndlessRecordTest() {
    const fs::path part = run_ / "logs/0/rank-00000.out.1";
    fs::create_directories(part.parent_path());
    EXPECT_EQ(::mkfifo(part.c_str(), 0600), 0);
  }
  // Until the end of the job, of whose rank this is the only line: its daemon is let go then.
  void AwaitEndOfJob() const {
    const fs::path log = run_ / "logs/0/rank-00000.out";
    std::string said;
    while (!said.ends_with(" .\n")) {
      std::this_thread::yield();
      const StatusOr<std::string> text = ReadFile(log);
      if (text.ok()) said = *text;
    }
    const UniqueFd daemon = OpenProcess(NumberAfter("of ", said));
    if (!daemon.valid()) return;  // it has ended
    EXPECT_TRUE(AwaitEnd(daemon)) << "the daemon lives on";
  }
};

TEST_F(EndlessRecordTest, HandlesSignalsWhileTheEndIsRecorded) {
  Program program(Command({"/bin/sh", "-c", "echo of $PPID .; exit 7"}),
                  {.time_limit = std::chrono::seconds(60)});
  AwaitEndOfJob();
  for (int i = 0; i < 2; ++i) {
    program.Signal(SIGTERM);
    AwaitTaken(program.pid());
  }
  EXPECT_EQ(program.Wait().status, 7);
  EXPECT_THAT(program.err(), HasSubstr("verdict.json is not written"));
}

TEST_F(EndlessRecordTest, OneSignalAndTimeEndIt) {
  std::vector<std::string> command = Command({"/bin/sh", "-c", "echo of $PPID .; exit 7"});
  command.insert(command.end() - 4, {"--lease_seconds", "2"});
  Program program(command, {.time_limit = std::chrono::seconds(60)});
  AwaitEndOfJob();
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait().status, 7);
  EXPECT_THAT(program.err(), HasSubstr("verdict.json is not written"));
}

// A rank that has become another user's, whom dsrun may not kill.
class UnkillableRankTest : public EndlessStopTest {
 protected:
  void SetUp() override {
    setpriv_ = folder_.path() / "setpriv";
    std::error_code error;
    fs::copy("/usr/bin/setpriv", setpriv_, error);
    if (::geteuid() != 0 || error) return SkipWithout("root", "no rank can change its user here");
    ::chmod(setpriv_.c_str(), 04755);
    ::chmod(folder_.path().c_str(), 0777);
    // Copies, since the checkout may lie where only its owner may look.
    for (const char* name : {"dsrun", "dsrund"}) {
      fs::copy(fs::path(DS_BIN_DIR) / name, folder_.path() / name);
    }
  }
  std::vector<std::string> AsNobody(const std::vector<std::string>& program) const {
    std::vector<std::string> command = {"/usr/bin/setpriv", "--reuid", "65534",
                                        "--regid",          "65534",   "--clear-groups"};
    const size_t dsrun_at = command.size();
    for (const std::string& word : Command(program)) command.push_back(word);
    command[dsrun_at] = folder_.path() / "dsrun";
    return command;
  }
  ProgramOptions Outside() const {
    return {.environment = {"XDG_RUNTIME_DIR="}, .working_directory = folder_.path()};
  }
  // Says its pid and stays.
  std::vector<std::string> Stubborn() const {
    return {setpriv_.string(), "--reuid", "0",
            "/bin/sh",         "-c",      "trap '' TERM; echo pid $$ .; exec sleep 600"};
  }
  fs::path setpriv_;
};

// Nobody is there to press Ctrl-C, as at night.
TEST_F(UnkillableRankTest, ItIsGivenUpAndNamedAndItsJobEnds) {
  std::vector<std::string> command = AsNobody(Stubborn());
  const auto program_at = std::find(command.begin(), command.end(), "--");
  command.insert(program_at, {"--max_restarts", "3"});
  const std::string changed = (folder_.path() / "changed").string();  // rank 0 its user
  ASSERT_EQ(::mkfifo(changed.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(changed.c_str(), 0666), 0);
  command.back() = "[ $RANK = 1 ] && { read x <" + changed + "; exit 7; }; echo >" + changed +
                   "; " + command.back();
  *(std::find(command.begin(), command.end(), "--num_gpus") + 1) = "2";
  Program program(command, Outside());
  ASSERT_TRUE(program.WaitForOutput(" .\n")) << program.err();
  const pid_t rank = NumberAfter("pid ", program.out());
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 0, process " + std::to_string(rank) + " (sleep), state S"));
  EXPECT_THAT(result.err, HasSubstr("not restarted: host localhost: rank 0"));
  EXPECT_EQ(::kill(rank, SIGKILL), 0) << "it was killed, and this test tried nothing";
}

TEST_F(UnkillableRankTest, ASecondSignalEndsItsJobAndNamesIt) {
  Program program(AsNobody(Stubborn()), Outside());
  ASSERT_TRUE(program.WaitForOutput(" .\n")) << program.err();
  const pid_t rank = NumberAfter("pid ", program.out());
  const ProgramResult result = StopTwice(program);
  EXPECT_THAT(result.err,
              HasSubstr("rank 0, process " + std::to_string(rank) + " (sleep), state S"));
  EXPECT_EQ(ReadVerdict().value("cause", ""), "user_stop");
  EXPECT_EQ(::kill(rank, SIGKILL), 0) << "it was killed, and this test tried nothing";
}

}  // namespace
}  // namespace ds::testing
