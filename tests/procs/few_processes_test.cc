// dsrun where a user may have so many processes and threads and no more.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
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
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// A user who has no processes but the test's.
constexpr int kUser = 64321;

// More than a job of two ranks needs: gRPC's threads grow with the processors.
const int kPlenty = 60 + 2 * static_cast<int>(std::min(32U, std::thread::hardware_concurrency()));

// A script that starts processes until there may be no other, then does something without any, and
// waits to be ended: a shell that cannot fork ends.
std::string FillThen(const std::string& script) {
  return "trap '" + script + "; exec sleep 600' EXIT; while :; do sleep 600 & done 2>/dev/null";
}

class FewProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      return SkipWithout("root", "only root can become a user who has no other processes");
    }
    for (const char* name : {"dsrun", "dsrund"}) {  // where every user may read them
      fs::copy_file(fs::path(DS_BIN_DIR) / name, folder_.path() / name);
    }
    fs::permissions(folder_.path(), fs::perms::owner_all | fs::perms::others_exec |
                                        fs::perms::others_read | fs::perms::others_write);
  }
  fs::path RunDir(int processes) const {
    return folder_.path() / ("run-" + std::to_string(processes));
  }
  nlohmann::json Verdict(int processes) const {
    const StatusOr<std::string> text = ReadFile(RunDir(processes) / "verdict.json");
    EXPECT_TRUE(text.ok()) << text.status().message();
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json::object();
  }
  // The words that run dsrun with a shell script in each rank, as that user.
  std::vector<std::string> Command(int processes, int ranks, const std::string& script) const {
    const std::string user = std::to_string(kUser);
    return {"/usr/bin/setpriv",
            "--reuid=" + user,
            "--regid=" + user,
            "--clear-groups",
            "/usr/bin/prlimit",
            "--nproc=" + std::to_string(processes),
            (folder_.path() / "dsrun").string(),
            "--device",
            "cpu",
            "--num_gpus",
            std::to_string(ranks),
            "--grace_seconds",
            "1",
            "--run_dir",
            RunDir(processes).string(),
            "--",
            "/bin/sh",
            "-c",
            script};
  }
  ProgramOptions Options() const {
    // LeakSanitizer, where this is built with it, wants a process of its own at the end.
    return {.environment = {"HOME=" + folder_.path().string(),
                            "XDG_RUNTIME_DIR=", "ASAN_OPTIONS=detect_leaks=0"},
            .working_directory = folder_.path(),
            .time_limit = std::chrono::seconds(120)};
  }

  TemporaryFolder folder_;
};

// However few there are, a job begins and ends well, or does not begin; dsrun waits for nothing.
TEST_F(FewProcessesTest, AJobIsRefusedWhereTheyDoNotSuffice) {
  int refused = 0;
  for (const int processes : {1, 2, 3, 4, 6, 8, 10, 13, 16, 19, 22, 25, 28, 31, kPlenty}) {
    const ProgramResult result = RunProgram(Command(processes, 2, "exit 0"), Options());
    if (result.status == 0) continue;
    ++refused;
    ASSERT_EQ(result.status, 3) << processes << ": " << result.err;
    ASSERT_LT(processes, kPlenty) << result.err;
    const nlohmann::json verdict = Verdict(processes);
    EXPECT_THAT(verdict.value("cause", ""), AnyOf("preflight", "launch")) << processes;
    EXPECT_THAT(verdict.value("message", ""),
                AllOf(AnyOf(HasSubstr("threads are needed and "),
                            HasSubstr("no process may be started"), HasSubstr("no thread ")),
                      HasSubstr("ulimit -u")))
        << processes;
  }
  EXPECT_GT(refused, 5);
}

// The rank has used up what there was when the stop comes.
TEST_F(FewProcessesTest, AStopReachesRanksThatHaveUsedThemUp) {
  Program dsrun(Command(kPlenty, 1, FillThen("echo full")), Options());
  ASSERT_TRUE(dsrun.WaitForOutput("full")) << dsrun.err();
  dsrun.Signal(SIGTERM);
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_EQ(Verdict(kPlenty).value("cause", ""), "user_stop");
}

// What it then says is the first that dsrun has to show. All that the rank has written before
// arrives: where a connection is full gRPC wants one more thread, for which ranks leave room.
TEST_F(FewProcessesTest, ABlockedConsoleDelaysNothingEvenThen) {
  const std::string written = (folder_.path() / "written").string();
  ASSERT_EQ(::mkfifo(written.c_str(), 0600), 0);
  ASSERT_EQ(::chown(written.c_str(), kUser, kUser), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd unread(ends[0]);
  const UniqueFd pipe(ends[1]);
  ProgramOptions options = Options();
  options.output_fd = pipe.get();
  Program dsrun(
      Command(kPlenty, 1,
              FillThen("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); echo line $i; done; echo >" +
                       written)),
      options);
  ASSERT_TRUE(ReadFile(written).ok());
  dsrun.Signal(SIGTERM);
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_EQ(Verdict(kPlenty).value("cause", ""), "user_stop");
  const StatusOr<std::string> log = ReadFile(RunDir(kPlenty) / "logs/0/rank-00000.out");
  ASSERT_TRUE(log.ok()) << log.status().message();
  EXPECT_TRUE(log->ends_with("\nline 50000\n"));
}

}  // namespace
}  // namespace ds::testing
