// wall_clock_breakdown: what of a step is timed as what, and how it is told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/clock.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using std::chrono::milliseconds;

// A millisecond passes with every look at it.
class TickingClock : public ManualClock {
 public:
  std::chrono::nanoseconds Now() const override { return milliseconds(++looks_); }

 private:
  mutable std::int64_t looks_ = 0;
};

// Trains a step of two micro-batches on two ranks; returns the first one's times, and what is
// printed to `printed`.
std::optional<engine::PhaseTimes> TimeAStep(bool wall_clock_breakdown, std::string* printed) {
  std::optional<engine::PhaseTimes> times;
  ::testing::internal::CaptureStdout();
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 1, .accumulation = 2};
    config::DsConfig config = TinyConfig(run);
    config.wall_clock_breakdown = wall_clock_breakdown;
    const TickingClock clock;
    const auto engine = Engine::create(MakeTinyModel(run.shape, at::kFloat), config,
                                       {.world = &world, .clock = &clock})
                            .value();
    EXPECT_FALSE(DeepSpeedApi(*engine).wall_clock_timers().has_value());
    TrainTiny(*engine, run, 1);
    if (world.rank() == 0) times = DeepSpeedApi(*engine).wall_clock_timers();
  });
  *printed = ::testing::internal::GetCapturedStdout();
  return times;
}

// Each phase has one tick of its own. A backward has five: between its two looks at the clock are
// four others.
TEST(PhaseTimers, ReportMicroBatchesAndTheirStep) {
  std::string printed;
  const auto times = TimeAStep(true, &printed);
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->forward, milliseconds(2));
  EXPECT_EQ(times->backward_inner, milliseconds(2));
  EXPECT_EQ(times->backward_allreduce, milliseconds(3)) << "the step's own is the third";
  EXPECT_EQ(times->backward, milliseconds(5 + 5 + 3));
  EXPECT_EQ(times->step, milliseconds(1));
  EXPECT_EQ(printed,
            "time (ms) | fwd_microstep: 1.00 | bwd_microstep: 5.00 | bwd_inner_microstep: 1.00 | "
            "bwd_allreduce_microstep: 1.00 | step_microstep: 0.00\n"
            "time (ms) | fwd_microstep: 1.00 | bwd_microstep: 8.00 | bwd_inner_microstep: 1.00 | "
            "bwd_allreduce_microstep: 2.00 | step_microstep: 1.00\n"
            "time (ms) | fwd: 2.00 | bwd: 13.00 | bwd_inner: 2.00 | bwd_allreduce: 3.00 | "
            "step: 1.00\n");
}

TEST(PhaseTimers, AreSilentUnlessAskedFor) {
  std::string printed;
  EXPECT_FALSE(TimeAStep(false, &printed).has_value());
  EXPECT_EQ(printed, "");
}

}  // namespace
}  // namespace ds::tests
