#include "daemon/ranks/rank_monitor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/logs/shared_values.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

using ::testing::ElementsAre;

// One rank of a shell's, whose events are read when it has ended.
class RankMonitorTest : public ::testing::Test, public RankWatcher {
 protected:
  v1::RankExited OnExit(const RankExit& exit, pid_t /*pid*/) override {
    failed_ = exit.failed();
    return {};
  }
  void OnEnded() override { loop_->Quit(); }
  void OnOutsideGroup(std::uint32_t rank, const Status& why) override {
    EXPECT_EQ(rank, 5U);
    outside_group_ = why;
  }
  void OnStartFailed(std::uint32_t rank, const Status& why) override {
    EXPECT_EQ(rank, 5U);
    start_failure_ = why;
  }

  void Make(const RankCommand& command, int group = -1) {
    StatusOr<RankProcess> process = RankProcess::Begin(command, group);
    ASSERT_TRUE(process.ok()) << process.status().message();
    monitor_.emplace(RankContext{loop_.get(), &log_, &values_, buffer_, /*rank=*/5},
                     *std::move(process), (folder_.path() / "error").string(),
                     std::chrono::nanoseconds(0), this);
  }
  void Run(const std::string& script) {
    Make({.executable = "/bin/sh", .argv = {"sh", "-c", script}});
    ASSERT_TRUE(monitor_->Start().ok());
    ASSERT_TRUE(loop_->Run().ok());
    ReadEvents();
  }
  void ReadEvents() {
    auto watcher = log_.Open(0);
    v1::EventBatch batch;
    while (log_.Wait(&*watcher, {}, &batch) == EventLog::Next::kBatch) {
      for (const v1::Event& event : batch.events()) Read(event);
    }
  }
  void Read(const v1::Event& event) {
    if (event.has_rank_started()) seen_.emplace_back("started");
    if (event.has_rank_output()) output_ += event.rank_output().data();
    if (!event.has_rank_exited()) return;
    seen_.push_back("exited after " + output_);
    exited_ = event.rank_exited();
  }

  const ds::testing::TemporaryFolder folder_;
  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  EventLog log_{EventLogLimits{}, [] {}};
  SharedValues values_;
  std::vector<char> buffer_ = std::vector<char>(100);
  std::optional<RankMonitor> monitor_;
  bool failed_ = false;
  Status start_failure_;
  Status outside_group_;
  std::vector<std::string> seen_;
  std::string output_;
  v1::RankExited exited_;
};

TEST_F(RankMonitorTest, TheEndFollowsAllOutput) {
  Run("echo here; exit 3");
  EXPECT_THAT(seen_, ElementsAre("started", "exited after here\n"));
  EXPECT_EQ(exited_.rank(), 5U);
  EXPECT_EQ(exited_.exit_code(), 3);
  EXPECT_FALSE(exited_.output_cut());
  EXPECT_TRUE(failed_);
}

TEST_F(RankMonitorTest, AForgottenHelperThatHoldsTheOutputOpenIsEnded) {
  Run("sleep 1000 & echo $!");
  EXPECT_TRUE(exited_.output_cut());
  EXPECT_EQ(exited_.exit_code(), 0);
  EXPECT_FALSE(failed_);
}

TEST_F(RankMonitorTest, PassesOnTheExceptionOfAFailedProgram) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "error", "{}").ok());
  Run("exit 1");
  EXPECT_EQ(exited_.error_file(), "{}");
}

TEST_F(RankMonitorTest, ASuccessfulRankReportsNoException) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "error", "{}").ok());
  Run("exit 0");
  EXPECT_EQ(exited_.error_file(), "");
}

TEST_F(RankMonitorTest, ARankEntersItsControlGroup) {
  const std::string file = (folder_.path() / "cgroup.procs").string();
  const UniqueFd group(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Make({.executable = "/bin/true", .argv = {"true"}}, group.get());
  ASSERT_TRUE(monitor_->Start().ok());
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(*ReadFile(file), "0") << "the kernel takes it for the process that writes";
  EXPECT_TRUE(outside_group_.ok());
}

TEST_F(RankMonitorTest, ARankThatItsControlGroupRefusesRunsAndIsReported) {
  const UniqueFd group(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Make({.executable = "/bin/true", .argv = {"true"}}, group.get());
  ASSERT_TRUE(monitor_->Start().ok());
  ASSERT_TRUE(loop_->Run().ok());
  ReadEvents();
  EXPECT_THAT(seen_, ElementsAre("started", "exited after "));
  EXPECT_EQ(outside_group_.message(), ErrnoError(ENOSPC, "cgroup.procs").message());
}

TEST_F(RankMonitorTest, APlaceThatIsMissingFailsTheStart) {
  Make({.executable = "/bin/sh", .argv = {"sh"}, .working_directory = "/no/such/folder"});
  ASSERT_TRUE(monitor_->Start().ok());
  ASSERT_TRUE(loop_->Run().ok());
  ReadEvents();
  EXPECT_THAT(seen_, ElementsAre());
  EXPECT_EQ(start_failure_.code(), StatusCode::kNotFound);
  EXPECT_TRUE(monitor_->ended());
  EXPECT_EQ(::kill(monitor_->pid(), 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

}  // namespace
}  // namespace ds::daemon
