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
    for (std::size_t i = 0; i < row.steps.size(); ++i) {
      EXPECT_EQ(stop.OnSignal(SIGTERM), row.steps[i]);
      EXPECT_EQ(stop.ends_at_once(), i >= 1);
    }
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

// A restart waits for processes, of which he is told, and then goes on.
TEST(UserStopTest, EarlierNoticesDoNotTakeTheGraceOfRestartedRanks) {
  UserStop stop;
  stop.Enter(kPreparing);
  stop.OnTold();
  stop.Enter(kLaunching);
  stop.Enter(kRunning);
  EXPECT_EQ(stop.OnSignal(SIGINT), kStopRanks);
  EXPECT_FALSE(stop.kills_daemons());
}

TEST(UserStopTest, EventsAfterTheEndChangeNoOutcome) {
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

// After a first signal what goes on is waited for.
TEST(UserStopTest, ATimeoutGivesUpHangingSteps) {
  for (const JobPhase phase : {kLaunching, kRunning, kStopping, kEnded}) {
    UserStop stop;
    stop.Enter(phase);
    stop.OnSignal(SIGINT);
    EXPECT_EQ(stop.OnTimeUp(/*goes_on=*/true), Patience::kWait);
    EXPECT_FALSE(stop.ends_at_once());
    EXPECT_EQ(stop.OnTimeUp(/*goes_on=*/false), Patience::kGiveUp);
    EXPECT_TRUE(stop.kills_daemons());
    EXPECT_TRUE(stop.ends_at_once());
    EXPECT_EQ(stop.OnTimeUp(/*goes_on=*/true), Patience::kGiveUp) << "for good";
  }
}

TEST(UserStopTest, AfterASecondSignalThereIsOneLastChance) {
  for (const JobPhase phase : {kLaunching, kRunning, kStopping, kEnded}) {
    UserStop stop;
    stop.Enter(phase);
    stop.OnSignal(SIGINT);
    stop.OnSignal(SIGINT);
    EXPECT_EQ(stop.OnTimeUp(/*goes_on=*/true), Patience::kLastChance);
    EXPECT_FALSE(stop.BeginLastChance());
    EXPECT_FALSE(stop.kills_daemons());
    EXPECT_EQ(stop.OnTimeUp(/*goes_on=*/true), Patience::kGiveUp);
    EXPECT_TRUE(stop.kills_daemons());
  }
  UserStop begun;
  begun.Enter(kEnded);
  begun.OnSignal(SIGINT);
  begun.OnSignal(SIGINT);
  EXPECT_TRUE(begun.BeginLastChance());
  EXPECT_EQ(begun.OnTimeUp(/*goes_on=*/true), Patience::kGiveUp);
}

class TwoRanks : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override {
    return RankProgram{.argv = {"prog"}};
  }
};

// A job on one host, unless a test brings others: rank 0 fails, rank 1 has something to save.
class StoppedJobTest : public ::testing::Test {
 protected:
  JobController& Controller(int max_restarts, double grace_seconds = 1) {
    return ControllerOf({&daemon_}, {.max_restarts = max_restarts, .grace_seconds = grace_seconds});
  }
  // Of other hosts when there are several.
  JobController& ControllerOf(const std::vector<testing::FakeDaemon*>& daemons,
                              const LaunchFlags& flags) {
    std::vector<HostSlots> hosts;
    for (testing::FakeDaemon* const daemon : daemons) {
      hosts.push_back(
          {.host = std::string(1, static_cast<char>('a' + hosts.size())), .slots = {0, 1}});
      daemon->prepare_answer.set_core_count(4);
      daemon->prepare_answer.set_master_port(4242);
    }
    JobPlan plan{.job_id = "job", .flags = flags, .world = PlanWorld(hosts), .master_addr = "m"};
    for (JobHost& host : plan.world.hosts) host.remote = daemons.size() > 1;
    controller_.emplace(std::move(plan), &program_, testing::ByNumber(daemons), &observer_,
                        JobController::Options{.stop = &stop_});
    return *controller_;
  }

  testing::FakeDaemon daemon_{{{testing::Exited(0, 7), testing::Output(1, "saving\n")}}};
  TwoRanks program_;
  testing::RecordingObserver observer_;
  UserStop stop_;
  std::optional<JobController> controller_;
};

// A rank that has missed another one yields to the loss of a host, but not to dsrun's own doing.
TEST_F(StoppedJobTest, ADaemonThatDsrunHasKilledIsNotToBlame) {
  v1::Event missed;
  missed.mutable_rank_report()->mutable_error()->set_code(
      static_cast<std::int64_t>(StatusCode::kUnavailable));
  missed.mutable_rank_report()->mutable_error()->set_message("rank 1 is not there");
  testing::FakeDaemon killed(
      {{missed, testing::Exited(0, 1), testing::Output(1, "still here\n"), testing::Cut()}});
  JobController& controller = ControllerOf({&killed}, {.grace_seconds = 1});
  observer_.on_output = [&] {
    stop_.OnTold();
    EXPECT_EQ(controller.OnSignal(SIGINT), StopStep::kKillDaemons);
  };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kRankError) << outcome.failure().hint;
  EXPECT_EQ(outcome.failure().message, "rank 1 is not there");
}

// Its dsrund is frozen, and its ranks live.
TEST_F(StoppedJobTest, AHostThatDidNotConfirmItsRanksEndIsNamed) {
  testing::FakeDaemon well({{testing::Output(0, "one\n"), testing::Output(0, "two\n")}});
  testing::FakeDaemon frozen(std::vector<std::vector<v1::Event>>(1));
  JobController& controller = ControllerOf({&well, &frozen}, {.grace_seconds = 1});
  observer_.on_output = [&] {
    if (stop_.signal() == 0) {
      controller.OnSignal(SIGINT);
    } else {
      controller.OnHostChange({.host = 1, .grade = HostGrade::kLost, .probe = ProbeResult()});
    }
  };
  frozen.unanswered_stops = 1'000'000;
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kUserStop);
  EXPECT_EQ(outcome.failure().hint,
            "host b did not confirm that its ranks have ended: look there for dsrund --job=job, "
            "which ends them when it resumes");
}

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
