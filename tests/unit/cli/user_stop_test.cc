#include "cli/job/user_stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <vector>

#include "cli/job/job_controller.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/fake_daemon.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using enum JobPhase;
using enum StopStep;

struct StopRow {
  JobPhase phase;
  std::vector<StopStep> steps;  // of one signal after the other
  StopStep told;                // of the next when the user was told of a daemon
  bool to_blame;
};

TEST(UserStopTest, EveryRowOfTheTable) {
  for (const StopRow& row :
       {StopRow{kPreparing, {kCancelStart, kNothing, kNothing}, kKillDaemons, true},
        StopRow{kLaunching, {kStopRanks, kKillRanks, kNothing}, kKillDaemons, true},
        StopRow{kRunning, {kStopRanks, kKillRanks, kNothing}, kKillDaemons, true},
        StopRow{kStopping, {kKeepGrace, kKillRanks, kNothing}, kKillDaemons, false},
        StopRow{kEnded, {kNothing, kNothing, kNothing}, kKillDaemons, false}}) {
    SCOPED_TRACE(static_cast<int>(row.phase));
    UserStop stop;
    stop.Enter(row.phase);
    for (const StopStep step : row.steps) EXPECT_EQ(stop.OnSignal(SIGTERM), step);
    EXPECT_EQ(stop.is_to_blame(), row.to_blame);
    stop.OnTold();
    EXPECT_FALSE(stop.kills_daemons());
    EXPECT_EQ(stop.OnSignal(SIGTERM), row.told);
    EXPECT_TRUE(stop.kills_daemons());
  }
}

TEST(UserStopTest, EverySignalBeforeTheEndForbidsAnotherGeneration) {
  for (const JobPhase phase : {kPreparing, kLaunching, kRunning, kStopping}) {
    UserStop stop;
    stop.Enter(phase);
    EXPECT_EQ(stop.signal(), 0);
    stop.OnSignal(SIGHUP);
    stop.OnSignal(SIGINT);
    stop.Enter(kPreparing);
    EXPECT_EQ(stop.signal(), SIGHUP) << "the first is the one that counts";
  }
}

TEST(UserStopTest, WhatComesAfterTheEndChangesNoOutcome) {
  UserStop stop;
  stop.Enter(kEnded);
  stop.OnSignal(SIGINT);
  EXPECT_FALSE(stop.is_to_blame());
}

// A job that is quicker than the cancelling of its start has ranks all the same.
TEST(UserStopTest, TheSecondKillsWhereverTheFirstCame) {
  for (const JobPhase first : {kPreparing, kLaunching, kRunning, kStopping}) {
    for (const JobPhase second : {kLaunching, kRunning, kStopping}) {
      UserStop stop;
      stop.Enter(first);
      stop.OnSignal(SIGINT);
      stop.Enter(second);
      EXPECT_FALSE(stop.kills_ranks());
      EXPECT_EQ(stop.OnSignal(SIGINT), kKillRanks);
      EXPECT_TRUE(stop.kills_ranks());
      EXPECT_EQ(stop.is_to_blame(), first != kStopping);
    }
  }
}

TEST(UserStopTest, OnceMoreIsPromisedWhereOnceMoreKills) {
  for (const JobPhase phase : {kPreparing, kLaunching, kRunning, kStopping}) {
    UserStop stop;
    stop.Enter(phase);
    const std::string_view notice = StopNotice(stop.OnSignal(SIGINT));
    const bool promised = notice.find("once more kills them") != std::string_view::npos;
    EXPECT_EQ(promised, stop.OnSignal(SIGINT) == kKillRanks) << notice;
  }
}

class TwoRanks : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override {
    return RankProgram{.argv = {"prog"}};
  }
};

// A job on one host: rank 0 fails, rank 1 has something to save.
class StoppedJobTest : public ::testing::Test {
 protected:
  JobController& Controller(int max_restarts, double grace_seconds = 1) {
    daemon_.prepare_answer.set_core_count(4);
    daemon_.prepare_answer.set_master_port(4242);
    controller_.emplace(
        JobPlan{.job_id = "job",
                .flags = {.max_restarts = max_restarts, .grace_seconds = grace_seconds},
                .world = PlanWorld({{.host = "a", .slots = {0, 1}}}),
                .master_addr = "m"},
        &program_, std::vector<HostDaemon*>{&daemon_}, &observer_,
        JobController::Options{.stop = &stop_});
    return *controller_;
  }

  testing::FakeDaemon daemon_{{{testing::Exited(0, 7), testing::Output(1, "saving\n")}}};
  TwoRanks program_;
  testing::RecordingObserver observer_;
  UserStop stop_;
  std::optional<JobController> controller_;
};

TEST_F(StoppedJobTest, ASignalBeforeTheLaunchStartsNothing) {
  JobController& controller = Controller(/*max_restarts=*/0);
  controller.OnSignal(SIGTERM);
  EXPECT_EQ(controller.Run().failure().exit_code, 143);
  EXPECT_TRUE(daemon_.launched.empty());
}

// Each call is answered only because it is cancelled.
TEST_F(StoppedJobTest, ASignalEndsAPrepareThatHangs) {
  JobController& controller = Controller(/*max_restarts=*/5);
  daemon_.on_start = [&] {
    EXPECT_EQ(controller.OnSignal(SIGINT), StopStep::kCancelStart);
    daemon_.CancelStarts();
  };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kUserStop);
  EXPECT_EQ(outcome.failure().exit_code, 130);
  EXPECT_TRUE(daemon_.launched.empty());
}

TEST_F(StoppedJobTest, TwoSignalsEndALaunchThatHangs) {
  JobController& controller = Controller(/*max_restarts=*/5);
  daemon_.on_start = [&] {
    if (daemon_.launched.empty()) return;  // Prepare is answered
    EXPECT_EQ(controller.OnSignal(SIGINT), StopStep::kStopRanks);
    EXPECT_EQ(controller.OnSignal(SIGTERM), StopStep::kKillRanks);
    daemon_.CancelStarts();
  };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kUserStop);
  EXPECT_EQ(outcome.failure().exit_code, 130);
  EXPECT_EQ(daemon_.launched.size(), 1U);
}

TEST_F(StoppedJobTest, ASignalDuringALaunchStopsItsRanksWithTheirGrace) {
  JobController& controller = Controller(/*max_restarts=*/5, /*grace_seconds=*/1);
  daemon_.on_start = [&] {
    if (!daemon_.launched.empty()) controller.OnSignal(SIGINT);
  };
  EXPECT_EQ(controller.Run().failure().cause, Cause::kUserStop);
  EXPECT_THAT(daemon_.graces, ElementsAre(1));
}

// The failure is what the verdict is about all the same.
TEST_F(StoppedJobTest, ASignalInAFailuresGraceKeepsItAndForbidsARestart) {
  JobController& controller = Controller(/*max_restarts=*/5, /*grace_seconds=*/1);
  observer_.on_output = [&] { EXPECT_EQ(controller.OnSignal(SIGTERM), StopStep::kKeepGrace); };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kExitCode);
  EXPECT_EQ(outcome.failure().exit_code, 7);
  EXPECT_THAT(daemon_.graces, ElementsAre(1));
  EXPECT_EQ(daemon_.launched.size(), 1U);
  EXPECT_THAT(observer_.notices, ElementsAre("not restarted: the user stopped the job"));
}

TEST_F(StoppedJobTest, ASecondSignalInAFailuresGraceEndsIt) {
  JobController& controller = Controller(/*max_restarts=*/5, /*grace_seconds=*/60);
  observer_.on_output = [&] {
    controller.OnSignal(SIGTERM);
    EXPECT_EQ(controller.OnSignal(SIGTERM), StopStep::kKillRanks);
  };
  EXPECT_EQ(controller.Run().failure().exit_code, 7);
  EXPECT_THAT(daemon_.graces, ElementsAre(60, 0));
}

}  // namespace
}  // namespace ds::cli
