// A machine that has no more threads to give: jobs end with a verdict, and stops go out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/console/backlog_writer.h"
#include "cli/front/input_forwarder.h"
#include "cli/job/job_controller.h"
#include "cli/job/user_signals.h"
#include "cli/job/user_stop.h"
#include "cli/remote/interrupter.h"
#include "runtime/process/pipe.h"
#include "tests/support/no_more_threads.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/fake_daemon.h"

namespace ds::cli {
namespace {

using ds::testing::NoMoreThreads;
using ::testing::ElementsAre;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using testing::Output;

class SameProgram : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int /*generation*/) const override {
    return RankProgram{.argv = {"prog"}};
  }
};

class ThreadShortageTest : public ::testing::Test {
 protected:
  // Of two hosts, "a" and "b", whose ranks run until they are stopped; those of "a" say something.
  JobController& Controller() { return Controller(&first_); }
  // Another daemon may have host "a".
  JobController& Controller(FakeDaemon* first) {
    for (FakeDaemon* daemon : {first, &second_}) {
      daemon->prepare_answer.set_core_count(4);
      daemon->prepare_answer.set_master_port(4242);
    }
    controller_.emplace(
        JobPlan{.job_id = "job",
                .flags = {.grace_seconds = 1},
                .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0}}}),
                .master_addr = "m"},
        &program_, std::map<int, HostDaemon*>{{0, first}, {1, &second_}}, &observer_,
        JobController::Options{.input = input_, .stop = &stop_});
    return *controller_;
  }

  FakeDaemon first_{{{Output(0, "running\n")}}};
  FakeDaemon second_{{{}}};
  SameProgram program_;
  testing::RecordingObserver observer_;
  UserStop stop_;
  InputForwarder* input_ = nullptr;
  std::optional<JobController> controller_;
};

TEST_F(ThreadShortageTest, AStopReachesEveryHost) {
  JobController& controller = Controller();
  second_.unanswered_stops = 2;
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

TEST_F(ThreadShortageTest, NoRankStartsWithoutAReaderOfItsInput) {
  StatusOr<Pipe> typed = MakePipe();
  ASSERT_TRUE(typed.ok());
  InputForwarder input(typed->read.get());
  input_ = &input;
  JobController& controller = Controller();
  const NoMoreThreads none;
  const JobOutcome outcome = controller.Run();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.failure().message, HasSubstr("rank 0's standard input"));
  EXPECT_EQ(outcome.failure().host, "a");
  EXPECT_TRUE(first_.launched.empty());
  EXPECT_TRUE(second_.launched.empty());
}

// What waits in line is not made to wait for as many calls to a host that does not answer.
TEST_F(ThreadShortageTest, HandlesEventsBetweenUnansweredStops) {
  constexpr int kEvents = 2000;
  constexpr int kStops = 1'000'000;
  FakeDaemon talking{{std::vector<v1::Event>(kEvents, Output(0, "running\n"))}};
  JobController& controller = Controller(&talking);
  second_.unanswered_stops = kStops;
  std::optional<NoMoreThreads> none;
  int handled = 0;
  int sent = 0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::duration elapsed{};
  observer_.on_output = [&] {
    if (++handled == 1) {
      begin = std::chrono::steady_clock::now();
      none.emplace();
      controller.OnSignal(SIGINT);
    }
    if (handled < kEvents) return;
    elapsed = std::chrono::steady_clock::now() - begin;
    sent = kStops - second_.unanswered_stops;
    second_.unanswered_stops = 0;
  };
  ASSERT_FALSE(controller.Run().ok());
  EXPECT_EQ(handled, kEvents);
  EXPECT_LE(sent, 3 + elapsed / std::chrono::milliseconds(200));
}

TEST(BacklogWriterTest, ShowsTextWithoutAThread) {
  StatusOr<Pipe> console = MakePipe();
  ASSERT_TRUE(console.ok());
  const NoMoreThreads none;
  BacklogWriter writer;
  writer.WriteAlways(console->write.get(), "why\n");
  writer.WriteLines(console->write.get(), "lines\n");
  writer.Flush();
  std::array<char, 64> shown{};
  const ssize_t size = ::read(console->read.get(), shown.data(), shown.size());
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string_view(shown.data(), static_cast<std::size_t>(size)), "why\nlines\n");
}

// As a job has it before its ranks may leave no room for one.
TEST(BacklogWriterTest, StartingInTimeKeepsABlockedConsoleFromDelayingOthers) {
  StatusOr<Pipe> console = MakePipe();
  ASSERT_TRUE(console.ok());
  BacklogWriter writer;
  writer.Start();
  const NoMoreThreads none;
  // More than a pipe takes, from this thread, which is the one that reads.
  const std::string lines(std::size_t{1} << 20, '\n');
  writer.WriteLines(console->write.get(), lines);
  std::string shown(lines.size(), ' ');
  for (std::size_t read = 0; read < shown.size();) {
    const ssize_t size = ::read(console->read.get(), shown.data() + read, shown.size() - read);
    ASSERT_GT(size, 0);
    read += static_cast<std::size_t>(size);
  }
  EXPECT_TRUE(shown == lines);
}

// The start of a daemon of this machine watches it.
TEST(InterrupterTest, NeedsNoThreadBeforeItsFirstGuard) {
  const NoMoreThreads none;
  Interrupter interrupter;
  pollfd interrupted{interrupter.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&interrupted, 1, 0), 0);
  interrupter.Interrupt();
  EXPECT_EQ(::poll(&interrupted, 1, 0), 1);
  EXPECT_TRUE(interrupter.interrupted());
  EXPECT_THROW(Interrupter::Guard(&interrupter, interrupter.fd(), Interrupter::Deadline::max()),
               std::system_error);
}

// With all that it calls for: the daemons' end when ranks do not follow.
TEST(UserSignalsTest, ASignalAndItsTimerNeedNoThread) {
  UserSignals signals;
  ASSERT_TRUE(signals.Listen().ok());
  const NoMoreThreads none;
  std::promise<int> heard;
  std::promise<void> passed;
  const SignalTarget target(&signals, {.on_signal =
                                           [&](int signal) {
                                             signals.StartTimer(std::chrono::seconds(1));
                                             heard.set_value(signal);
                                           },
                                       .on_timer = [&] { passed.set_value(); }});
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(heard.get_future().get(), SIGTERM);
  passed.get_future().get();
}

}  // namespace
}  // namespace ds::cli
