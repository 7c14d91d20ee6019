// A training whose checkpoints cannot be read for a moment.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/train_fixture.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainStorageTest : public TrainTest {};

// Leases on the files of a folder: open(2) says EAGAIN, as of a file server that is gone. Empty
// when one cannot be had.
std::vector<UniqueFd> LeaseFiles(const fs::path& folder) {
  std::signal(SIGIO, SIG_IGN);  // the kernel asks for the leases back
  std::vector<UniqueFd> leases;
  for (const auto& file : fs::directory_iterator(folder)) {
    UniqueFd fd(::open(file.path().c_str(), O_RDWR | O_CLOEXEC));
    if (::fcntl(fd.get(), F_SETLEASE, F_WRLCK) != 0) return {};
    leases.push_back(std::move(fd));
  }
  return leases;
}

bool HasLeases(const fs::path& folder) {
  fs::create_directories(folder);
  EXPECT_TRUE(WriteFileAtomically(folder / "file", "").ok());
  return !LeaseFiles(folder).empty();
}

// Returns once the process has stopped: SIGSTOP acts at its next turn.
void Stop(pid_t process) {
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  const fs::path status = fs::path("/proc") / std::to_string(process) / "stat";
  while (ReadFile(status)->find(") T ") == std::string::npos) std::this_thread::yield();
}

// The checkpoint that `latest` names, unless a newer one has its name already.
std::optional<std::int64_t> NewestStep(const fs::path& root) {
  const std::string text = *ReadFile(root / "latest");
  const std::int64_t latest = std::stoll(text.substr(text.find('-') + 1));
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    const bool is_finished = name.starts_with("step-") && name.find('.') == std::string::npos;
    if (is_finished && std::stoll(name.substr(5)) > latest) return std::nullopt;
  }
  return latest;
}

TEST_F(TrainStorageTest, AHiccupOfTheStorageCostsNoCheckpoint) {
  if (!HasLeases(RunDir("probe"))) GTEST_SKIP() << "this file system grants no leases";
  auto command =
      DsrunCommand(RunDir("hiccup"), Train(2, 1, {"--steps", "100000", "--save_every", "20"}));
  command.insert(command.begin() + 1, {"--max_restarts", "1"});
  Program program(command);
  const fs::path root = RunDir("hiccup") / "checkpoints";
  std::vector<UniqueFd> leases;
  std::optional<std::int64_t> newest;
  ASSERT_TRUE(program.WaitForOutput("step-40")) << program.err();
  const pid_t saver = RankPid("hiccup", 0);
  // A stopped rank 0 gives nothing its name. Where it was about to, another moment is better.
  for (int next = 60; leases.empty(); next += 20) {
    ASSERT_TRUE(program.WaitForOutput("step-" + std::to_string(next))) << program.err();
    Stop(saver);
    newest = NewestStep(root);
    if (newest) leases = LeaseFiles(root / ("step-" + std::to_string(*newest)));
    if (leases.empty()) {
      ASSERT_EQ(::kill(saver, SIGCONT), 0);
    }
  }
  ASSERT_EQ(::kill(saver, SIGKILL), 0);
  ASSERT_TRUE(program.WaitForOutput("cannot be used now")) << program.err();
  leases.clear();
  ASSERT_TRUE(program.WaitForOutput("resuming from")) << program.err();
  program.Signal(SIGINT);
  const auto result = program.Wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.err, HasSubstr("checkpoints/step-" + std::to_string(*newest) + "\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("damaged")));
}

}  // namespace
}  // namespace ds::testing
