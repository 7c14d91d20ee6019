// What a job does while its checkpoints cannot be read.

#include "cli/job/job_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <variant>

#include "tests/unit/cli/recording_observer.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;

class JobMachineTest : public ::testing::Test, public Program {
 protected:
  StatusOr<RankProgram> ForGeneration(int) const override { return answer_; }

  static JobPlan MakePlan() {
    return {.job_id = "job",
            .world = PlanWorld({{.host = "a", .slots = {0}}}),
            .master_addr = "m",
            .purpose = {.first_generation = 3}};
  }
  JobMachine::Parts MakeParts() {
    return {.program = this,
            .observer = &observer_,
            .stop = &stop_,
            .draw_key = [] { return std::string(); },
            .find_own_pause = [](std::optional<int>) { return std::optional<OwnPause>(); },
            .unix_nanos = [] { return std::int64_t{0}; }};
  }
  // Lets time pass, and answers what is asked then.
  void Pass(std::chrono::nanoseconds time) {
    now_ += time;
    for (const JobAction& action : machine_.Handle(TimePassed(), now_)) {
      if (!std::holds_alternative<AskProgram>(action.what)) continue;
      ++asked_;
      prepared_ += CountPrepares(machine_.Handle(ProgramAnswer{action.generation, answer_}, now_));
    }
  }
  static int CountPrepares(const JobActions& actions) {
    int count = 0;
    for (const JobAction& action : actions) {
      count += std::holds_alternative<v1::PrepareRequest>(action.what) ? 1 : 0;
    }
    return count;
  }

  StatusOr<RankProgram> answer_ = UnavailableError("step-60: Stale file handle");
  testing::RecordingObserver observer_;
  UserStop stop_;
  JobMachine machine_{MakePlan(), MakeParts()};
  std::chrono::nanoseconds now_ = 1000s;
  int asked_ = 0;
  int prepared_ = 0;
};

TEST_F(JobMachineTest, TroubleOfTheStorageIsWaitedFor) {
  EXPECT_TRUE(machine_.Begin().empty());
  Pass(0s);
  EXPECT_THAT(observer_.notices,
              ElementsAre(HasSubstr("step-60: Stale file handle; trying again")));
  EXPECT_EQ(machine_.next(), now_ + 5s);
  Pass(4s);
  EXPECT_EQ(asked_, 1);
  Pass(1s);
  EXPECT_EQ(asked_, 2);
  answer_ = RankProgram{.argv = {"prog"}};
  EXPECT_EQ(prepared_, 0);
  Pass(5s);
  EXPECT_EQ(prepared_, 1) << "it goes on";
  EXPECT_EQ(observer_.notices.size(), 1U);
}

TEST_F(JobMachineTest, ButNotForEver) {
  machine_.Begin();
  for (int i = 0; i < 1000 && !machine_.ended(); ++i) Pass(5s);
  ASSERT_TRUE(machine_.ended());
  EXPECT_EQ(now_, 1000s + 5s + 5min);
  const Verdict verdict = machine_.outcome().failure();
  EXPECT_EQ(verdict.exit_code, 6);
  EXPECT_EQ(verdict.cause, Cause::kCheckpoint);
  EXPECT_THAT(verdict.message, HasSubstr("step-60: Stale file handle"));
}

// A full disk was waited for, as a checkpoint that cannot be read.
TEST_F(JobMachineTest, AFolderThatCannotBeWrittenEndsTheJobAtOnce) {
  for (const Status& status :
       {PermissionDeniedError("run: Read-only file system"),
        ResourceExhaustedError("run: No space left on device"),
        InvalidArgumentError("run/lock: Is a directory"), AlreadyExistsError("run: File exists"),
        DataLossError("run/latest: a folder is where dsrun keeps a file")}) {
    answer_ = status;
    JobMachine machine(MakePlan(), MakeParts());
    machine.Begin();
    ASSERT_TRUE(machine.ended()) << status.message();
    EXPECT_EQ(machine.outcome().failure().exit_code, 6);
    EXPECT_EQ(machine.outcome().failure().cause, Cause::kCheckpoint);
    EXPECT_EQ(machine.outcome().failure().message, status.message());
  }
  EXPECT_TRUE(observer_.notices.empty());
}

TEST_F(JobMachineTest, TheUserEndsTheWait) {
  machine_.Begin();
  Pass(5s);
  stop_.OnSignal(SIGINT);
  machine_.Handle(UserSignal{SIGINT}, now_);
  ASSERT_TRUE(machine_.ended());
  EXPECT_EQ(machine_.outcome().failure().cause, Cause::kUserStop);
}

}  // namespace
}  // namespace ds::cli
