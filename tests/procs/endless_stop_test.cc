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

// From the third signal on; more than the 5 s that are promised, for a busy machine.
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
  // Three signals, each when the one before has been understood.
  ProgramResult StopThrice(Program& program) {
    program.Signal(SIGTERM);
    EXPECT_TRUE(program.WaitForOutput("stopping every rank"));
    program.Signal(SIGTERM);
    EXPECT_TRUE(program.WaitForOutput("killing every rank"));
    EXPECT_TRUE(program.WaitForOutput("waiting for dsrund"));
    const auto third = std::chrono::steady_clock::now();
    program.Signal(SIGTERM);
    ProgramResult result = program.Wait();
    EXPECT_LT(std::chrono::steady_clock::now() - third, kAMoment);
    EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
    return result;
  }

  TemporaryFolder folder_;
  const fs::path run_ = folder_.path() / "run";
};

// A log is a pipe that is full: whoever writes it waits for ever, as on a file system that hangs.
TEST_F(EndlessStopTest, AThirdSignalEndsAJobWhoseRunDirectoryHangs) {
  const fs::path log = run_ / "logs/0/rank-00000.out";
  fs::create_directories(log.parent_path());
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const UniqueFd reader(::open(log.c_str(), O_RDWR | O_CLOEXEC));
  Program program(Command({"/bin/sh", "-c", "seq 100000; echo written >&2; exec sleep 600"}));
  // The log takes less than that, and standard error has a log of its own.
  std::string pid;
  while (pid.empty()) {
    const StatusOr<std::string> text = ReadFile(run_ / "events.jsonl");
    std::istringstream events(text.ok() ? *text : "");
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (event.is_object() && event["event"] == "rank_started") pid = event["pid"].dump();
    }
  }
  const UniqueFd rank(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(pid), 0)));
  // Nothing tells that a pipe has become full; what is written to it is several times as much.
  for (pollfd full{reader.get(), POLLOUT, 0}; ::poll(&full, 1, 0) != 0;) ::sched_yield();
  const ProgramResult result = StopThrice(program);
  EXPECT_THAT(result.err, HasSubstr("ended by the third signal"));
  EXPECT_NE(::syscall(SYS_pidfd_send_signal, rank.get(), 0, nullptr, 0), 0) << "the rank lives";
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
  }
  std::vector<std::string> AsNobody(const std::vector<std::string>& program) const {
    std::vector<std::string> command = {"/usr/bin/setpriv", "--reuid", "65534",
                                        "--regid",          "65534",   "--clear-groups"};
    for (const std::string& word : Command(program)) command.push_back(word);
    return command;
  }
  // Says its pid and stays.
  std::vector<std::string> Stubborn() const {
    return {setpriv_.string(), "--reuid", "0",
            "/bin/sh",         "-c",      "trap '' TERM; echo pid $$ .; exec sleep 600"};
  }
  static pid_t PidIn(const std::string& text) {
    return std::stoi(text.substr(text.find("pid ") + 4));
  }

  fs::path setpriv_;
};

// Nobody is there to press Ctrl-C, as at night.
TEST_F(UnkillableRankTest, ItIsGivenUpAndNamedAndItsJobEnds) {
  std::vector<std::string> command = AsNobody(Stubborn());
  const auto program_at = std::find(command.begin(), command.end(), "--");
  command.insert(program_at, {"--max_restarts", "3"});
  command.back() = "[ $RANK = 1 ] && exit 7; " + command.back();
  *(std::find(command.begin(), command.end(), "--num_gpus") + 1) = "2";
  Program program(command, {.environment = {"XDG_RUNTIME_DIR="}});
  ASSERT_TRUE(program.WaitForOutput(" .\n")) << program.err();
  const pid_t rank = PidIn(program.out());
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 0, process " + std::to_string(rank) + " (sleep), state S"));
  EXPECT_THAT(result.err, HasSubstr("not restarted: host localhost: rank 0"));
  EXPECT_EQ(::kill(rank, SIGKILL), 0) << "it was killed, and this test tried nothing";
}

TEST_F(UnkillableRankTest, AThirdSignalEndsItsJob) {
  Program program(AsNobody(Stubborn()), {.environment = {"XDG_RUNTIME_DIR="}});
  ASSERT_TRUE(program.WaitForOutput(" .\n")) << program.err();
  const pid_t rank = PidIn(program.out());
  StopThrice(program);
  EXPECT_EQ(::kill(rank, SIGKILL), 0) << "it was killed, and this test tried nothing";
}

}  // namespace
}  // namespace ds::testing
