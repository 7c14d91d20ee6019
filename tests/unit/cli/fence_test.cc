#include "cli/job/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <system_error>
#include <utility>

#include "cli/job/job_controller.h"
#include "runtime/process/boot_time.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/fake_daemon.h"

namespace ds::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using testing::Cut;
using testing::Ended;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RecordingObserver;
using ::testing::StartsWith;

TEST(FenceTest, IsOpenAfterEveryHostReported) {
  EXPECT_EQ(Fence(seconds(10), seconds(15)).Remaining(seconds(0)), seconds(0));
}

// Lease, the grace of its end, and what kernel and guardian need.
TEST(FenceTest, OpensWhenTheLastLeaseHasEndedItsRanks) {
  Fence fence(seconds(10), seconds(2));
  fence.Add("a", seconds(100));
  fence.Add("b", seconds(103));
  EXPECT_EQ(fence.Remaining(seconds(103)), seconds(14));
  EXPECT_EQ(fence.Remaining(milliseconds(116'999)), milliseconds(1));
  EXPECT_EQ(fence.Remaining(seconds(117)), seconds(0));
  EXPECT_EQ(fence.Remaining(seconds(1000)), seconds(0));
}

TEST(FenceTest, ALongGraceEndsWithALease) {
  Fence fence(seconds(10), seconds(3600));
  fence.Add("a", seconds(0));
  EXPECT_EQ(fence.Remaining(seconds(0)), seconds(17));
}

TEST(FenceTest, NamesTheAwaitedHosts) {
  Fence fence(seconds(10), seconds(0));
  fence.Add("a", seconds(0));
  fence.Add("b", seconds(5));
  EXPECT_THAT(fence.Explain(seconds(1)),
              StartsWith("waiting 16 s before the restart: ranks on a, b may"));
  EXPECT_THAT(fence.Explain(milliseconds(13'500)),
              StartsWith("waiting 4 s before the restart: ranks on b may"));
}

// The controller with a lost host whose lease ends in a moment, and a spare.
class FencedControllerTest : public ::testing::Test, public ReplacementStarter, public Program {
 protected:
  static constexpr seconds kLease{1};

  FencedControllerTest() {
    for (FakeDaemon* daemon : {&kept_, &spare_, &back_})
      daemon->prepare_answer.set_master_port(4242);
    kept_.on_start = [this] {
      if (kept_.prepared.generation() == 1) kept_.prepare_answer.set_master_port(4243);
      if (kept_.launched.size() == 2) launched_at_ = BootTime();
    };
  }
  StatusOr<StartedReplacement> StartReplacement(const Replacement& replacement) override {
    started_.push_back(replacement);
    const bool is_return = replacement.host == 1;
    if (is_return && on_return_) on_return_();
    if (!is_return && on_spare_) on_spare_();
    if (!is_return && !spare_answer_.ok()) return spare_answer_;
    return StartedReplacement{.daemon = is_return ? &back_ : &spare_, .master_addr = "m"};
  }
  StatusOr<RankProgram> ForGeneration(int) const override { return RankProgram{.argv = {"prog"}}; }

  JobOutcome Run() {
    JobPlan plan{.job_id = "job",
                 .flags = {.lease_seconds = 1, .max_restarts = 1, .grace_seconds = 0},
                 .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0}}}),
                 .master_addr = "m"};
    for (JobHost& host : plan.world.hosts) host.remote = true;
    if (has_spare_) plan.spares.push_back({.host = "c", .slots = {0}, .remote = true});
    controller_ = std::make_unique<JobController>(
        std::move(plan), this, std::map<int, HostDaemon*>{{0, &kept_}, {1, &lost_}}, &observer_,
        JobController::Options{
            .spares = this, .stop = &stop_, .tell_of_wait = [this](auto& text) { told_ = text; }});
    return controller_->Run();
  }

  FakeDaemon kept_{{{}, {Ended()}}};
  FakeDaemon lost_{{{Cut()}}};
  FakeDaemon spare_{{{Ended()}}};
  FakeDaemon back_{{{Ended()}}};  // of the lost host
  RecordingObserver observer_;
  UserStop stop_;
  std::string told_;  // of what is waited for
  bool has_spare_ = true;
  std::function<void()> on_spare_, on_return_;
  std::vector<Replacement> started_;
  Status spare_answer_;
  std::unique_ptr<JobController> controller_;
  std::chrono::nanoseconds launched_at_{};
};

TEST_F(FencedControllerTest, TheNextGenerationBeginsWhenTheLostHostsRanksHaveEnded) {
  lost_.lease_from = BootTime() - kLease - seconds(1);  // and one of 2 s is left
  EXPECT_TRUE(Run().ok());
  EXPECT_GE(launched_at_, *lost_.lease_from + kLease + seconds(2));
  EXPECT_TRUE(lost_.abandoned);
  EXPECT_THAT(observer_.notices, Contains(HasSubstr("ranks on b may still run")));
}

TEST_F(FencedControllerTest, ItMeetsAtAPortOfItsOwn) {
  lost_.lease_from = std::chrono::nanoseconds(0);
  EXPECT_TRUE(Run().ok());
  ASSERT_EQ(kept_.launched.size(), 2U);
  const auto port_of = [this](int generation) {
    for (const auto& each : kept_.launched[generation].ranks(0).environment()) {
      if (each.name() == "MASTER_PORT") return each.value();
    }
    return std::string();
  };
  EXPECT_EQ(port_of(0), "4242");
  EXPECT_EQ(port_of(1), "4243");
}

TEST_F(FencedControllerTest, WithoutASpareTheLostHostItselfIsUsedWhenItsRanksHaveEnded) {
  has_spare_ = false;
  lost_.lease_from = BootTime() - kLease - seconds(1);
  std::chrono::nanoseconds returned_at{};
  on_return_ = [&] { returned_at = BootTime(); };
  EXPECT_TRUE(Run().ok());
  EXPECT_GE(returned_at, *lost_.lease_from + kLease + seconds(2));
  ASSERT_EQ(started_.size(), 1U);
  EXPECT_EQ(started_[0].node_rank, 1);
  EXPECT_GE(started_[0].number, 2) << "the lost daemon keeps its own";
  EXPECT_EQ(observer_.notices.back(), "a new daemon runs on host b");
}

TEST_F(FencedControllerTest, TheLostHostIsUsedWhenTheSpareCannotReplaceIt) {
  spare_.CancelStarts();
  EXPECT_TRUE(Run().ok());
  ASSERT_EQ(started_.size(), 2U);
  EXPECT_NE(started_[0].number, started_[1].number);
  EXPECT_TRUE(spare_.abandoned);
  EXPECT_EQ(back_.launched.size(), 1U);
}

TEST_F(FencedControllerTest, TheUserEndsTheWaitForALostHost) {
  has_spare_ = false;
  lost_.lease_from = BootTime() + std::chrono::hours(1);
  observer_.on_notice = [this](const std::string& text) {
    if (text.find("before the restart") != std::string::npos) controller_->OnSignal(SIGINT);
  };
  EXPECT_EQ(Run().failure().cause, Cause::kUserStop);
  EXPECT_TRUE(started_.empty());
}

TEST_F(FencedControllerTest, ASignalEndsTheWait) {
  lost_.lease_from = BootTime() + std::chrono::hours(1);
  spare_.on_start = [this] { controller_->OnSignal(SIGINT); };
  EXPECT_EQ(Run().failure().cause, Cause::kUserStop);
  EXPECT_EQ(kept_.launched.size(), 1U);
}

// Both wait until he has been told that what he sends has no effect: else this test has no end.
TEST_F(FencedControllerTest, HandlesTheUserWhileProcessesEndAndASpareStarts) {
  std::binary_semaphore answered(0);
  observer_.on_notice = [&](const std::string& text) {
    if (text.find("has no effect") != std::string::npos) answered.release();
  };
  int asked = 0;
  const auto ask = [&] {
    ++asked;
    controller_->OnSignal(SIGUSR1);
    answered.acquire();
  };
  lost_.on_await = ask;
  on_spare_ = ask;
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(told_, "waiting for a process");
}

// As std::async does where no thread is to be had.
TEST_F(FencedControllerTest, AnExceptionWhileStartingASpareIsItsFailure) {
  on_spare_ = [] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  EXPECT_TRUE(Run().ok()) << "the lost host itself is left";
  EXPECT_THAT(observer_.notices,
              Contains(HasSubstr("spare host c: this machine cannot start it: ")));
}

TEST_F(FencedControllerTest, ASpareIsNotBlamedForAStartThatTheUserEnded) {
  on_spare_ = [this] { controller_->OnSignal(SIGINT); };
  spare_answer_ = CancelledError("interrupted");
  EXPECT_EQ(Run().failure().cause, Cause::kUserStop);
  EXPECT_EQ(observer_.notices.back(), "not restarted: the user stopped the job");
  EXPECT_THAT(observer_.notices, Not(Contains(HasSubstr("spare"))));
}

}  // namespace
}  // namespace ds::cli
