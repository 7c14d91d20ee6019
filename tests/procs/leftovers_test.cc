// 64 ranks start and stop a hundred times; afterwards nothing of it is there.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 64;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTimes = 10;
#else
constexpr int kTimes = 100;
#endif

class LeftoversTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(runtime());
    fs::permissions(runtime(), fs::perms::owner_all);
    mark_ = "DSRUN_TEST_MARK=" + folder_.path().string();
  }
  fs::path runtime() const { return folder_.path() / "runtime"; }
  std::vector<std::string> Environment() const {
    return {mark_, "XDG_RUNTIME_DIR=" + runtime().string()};
  }
  // Rank 63 fails once it runs, which stops the others.
  ProgramResult StartAndStop(int time) const {
    return RunProgram(
        {DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", std::to_string(kRanks), "--run_dir",
         (folder_.path() / ("run-" + std::to_string(time))).string(), "--quiet", "--", "/bin/sh",
         "-c", "if [ $RANK = 63 ]; then exit 7; fi; exec sleep 600"},
        {.environment = Environment(), .working_directory = folder_.path()});
  }

  TemporaryFolder folder_;
  std::string mark_;
};

TEST_F(LeftoversTest, OfAHundredJobsOf64Ranks) {
  for (int time = 0; time < kTimes; ++time) {
    const ProgramResult result = StartAndStop(time);
    ASSERT_EQ(result.status, 7) << "time " << time << ": " << result.err;
    ASSERT_TRUE(fs::is_empty(runtime())) << "sockets or folders after time " << time;
  }
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
}

}  // namespace
}  // namespace ds::testing
