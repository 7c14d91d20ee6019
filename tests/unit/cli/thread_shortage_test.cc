// A machine that has no more threads to give: jobs end with a verdict, and stops go out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/job/job_controller.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/fake_daemon.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using testing::Output;

// While it lives this process gets no more threads: there is no room for a stack of such a size.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
    EXPECT_THROW(std::thread([] {}), std::system_error);
  }
  ~NoMoreThreads() { ::pthread_setattr_default_np(&before_); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

class SameProgram : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override {
    return RankProgram{.argv = {"prog"}};
  }
};

class ThreadShortageTest : public ::testing::Test {
 protected:
  // Of two hosts, "a" and "b", whose ranks run until they are stopped; those of "a" say something.
  JobController& Controller() {
    for (FakeDaemon* daemon : {&first_, &second_}) {
      daemon->prepare_answer.set_core_count(4);
      daemon->prepare_answer.set_master_port(4242);
    }
    controller_.emplace(
        JobPlan{.job_id = "job",
                .flags = {.grace_seconds = 1},
                .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0}}}),
                .master_addr = "m"},
        &program_, std::vector<HostDaemon*>{&first_, &second_}, &observer_,
        JobController::Options{});
    return *controller_;
  }

  FakeDaemon first_{{{Output(0, "running\n")}}};
  FakeDaemon second_{{{}}};
  SameProgram program_;
  testing::RecordingObserver observer_;
  std::optional<JobController> controller_;
};

TEST_F(ThreadShortageTest, NothingIsLaunchedThatNobodyCouldWatch) {
  JobController& controller = Controller();
  const NoMoreThreads none;
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kLaunch);
  EXPECT_THAT(outcome.failure().message, HasSubstr("no thread to watch it"));
  EXPECT_TRUE(first_.launched.empty());
}

TEST_F(ThreadShortageTest, AStopReachesEveryHost) {
  JobController& controller = Controller();
  std::optional<NoMoreThreads> none;
  observer_.on_output = [&] {
    none.emplace();
    controller.OnSignal(SIGINT);
  };
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().cause, Cause::kUserStop);
  EXPECT_THAT(first_.graces, ElementsAre(1));
  EXPECT_THAT(second_.graces, ElementsAre(1));
}

}  // namespace
}  // namespace ds::cli
