// Stages of a pipeline gather parameters and reduce gradients once a step, whatever number of
// micro-batches it has, where the config lets them lie whole for so long.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>

#include "tests/ranks/decoder_run.h"
#include "tests/ranks/observed_backend.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using comm::TrafficKind;
using pipeline::ScheduleKind;

struct WindowOrder {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;
};
constexpr WindowOrder kOrders[] = {{ScheduleKind::kGPipe},
                                   {ScheduleKind::kOneForwardOneBackward},
                                   {ScheduleKind::kInterleaved, 2},
                                   {ScheduleKind::kZeroBubbleH1},
                                   {ScheduleKind::kZeroBubbleV, 2}};

DecoderRun MakeRun(const WindowOrder& order, int zero, std::int64_t micro_batches) {
  return {.model = kLlamaDecoder,
          .pipeline = 2,
          .schedule = order.kind,
          .chunks = order.chunks,
          .stage = zero,
          .accumulation = micro_batches};
}

struct StateBytes {
  std::uint64_t gathered = 0, reduced = 0;
};

// Of the first rank's second step.
StateBytes CountBytes(const DecoderRun& run) {
  StateBytes bytes;
  testing::RunRanks(4, [&](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine(run, world);
    TrainDecoder(*engine, run, 1);
    const comm::Traffic before = world.traffic();
    TrainDecoder(*engine, run, 2);
    const comm::Traffic step = Since(before, world.traffic());
    if (world.rank() != 0) return;
    bytes = {step.of(TrafficKind::kAllGather).bytes, step.of(TrafficKind::kReduceScatter).bytes};
  });
  return bytes;
}

TEST(StageWindows, BytesOfAStepDoNotGrowWithItsMicroBatches) {
  for (const WindowOrder& order : kOrders) {
    for (const int zero : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ZeRO {}", NameOf(order.kind), zero));
      const StateBytes two = CountBytes(MakeRun(order, zero, 2));
      const StateBytes four = CountBytes(MakeRun(order, zero, 4));
      EXPECT_GT(two.gathered, 0U);
      EXPECT_GT(two.reduced, 0U);
      EXPECT_EQ(four.gathered, two.gathered);
      EXPECT_EQ(four.reduced, two.reduced);
    }
  }
}

// Each pass gathers what the one before, where its way has ended, has not left.
TEST(StageWindows, ABudgetBelowTheStageMakesAWindowOfAMicroBatch) {
  for (const WindowOrder& order : kOrders) {
    SCOPED_TRACE(NameOf(order.kind));
    DecoderRun run = MakeRun(order, /*zero=*/3, /*micro_batches=*/4);
    const StateBytes once = CountBytes(run);
    run.most_in_window = 100;
    const StateBytes often = CountBytes(run);
    EXPECT_GT(often.gathered, 2 * once.gathered);
    EXPECT_GE(often.reduced, 4 * once.reduced);
  }
}

// So that they go on beside the computation: nothing is left when the last gradient is sent on.
TEST(StageWindows, TheLastBackwardPassOfAStepReduces) {
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kOneForwardOneBackward}) {
    DecoderRun run = MakeRun({kind}, /*zero=*/2, /*micro_batches=*/4);
    run.pipeline = 3;
    testing::RunRanks(6, [&](comm::Communicator& host) {
      std::mutex mutex;
      int reductions = 0, after_sends = 0;
      const auto count = [&](c10d::OpType op, const at::Tensor&) {
        const std::lock_guard lock(mutex);
        const bool reduces = op == c10d::OpType::_REDUCE_SCATTER_BASE;
        reductions += reduces ? 1 : 0;
        after_sends = op == c10d::OpType::SEND ? 0 : after_sends + (reduces ? 1 : 0);
      };
      const auto observe = [&](comm::Communicator& control) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<ObservedBackend>(control.backend(), count);
      };
      comm::Communicator world(observe(host), c10::kCPU,
                               std::make_unique<comm::Communicator>(host.backend()), observe);
      const auto engine = MakeDecoderEngine(run, world);
      TrainDecoder(*engine, run, 1);
      const bool is_in_the_middle = world.rank() / 2 == 1;
      if (!is_in_the_middle) return;
      EXPECT_GT(reductions, 0) << NameOf(kind);
      EXPECT_EQ(after_sends, 0) << NameOf(kind);
    });
  }
}

// Sums of micro-batches come before those of ranks, as where gradients are not sharded.
TEST(StageWindows, HigherStagesOfZeroTrainWithTheBitsOfTheFirst) {
  for (const WindowOrder& order : kOrders) {
    for (const bool bf16 : {false, true}) {
      DecoderRun run = MakeRun(order, /*zero=*/1, /*micro_batches=*/4);
      run.bf16 = bf16;
      const DecoderOutcome first = RunDecoder(run, 4, kTrainedSteps);
      for (const int zero : {2, 3}) {
        SCOPED_TRACE(fmt::format("{} ZeRO {} bf16 {}", NameOf(order.kind), zero, bf16));
        run.stage = zero;
        const DecoderOutcome ours = RunDecoder(run, 4, kTrainedSteps);
        for (std::size_t i = 0; i < ours.steps.size(); ++i) {
          EXPECT_EQ(ours.steps[i].loss, first.steps[i].loss) << i;
          EXPECT_EQ(ours.steps[i].grad_norm, first.steps[i].grad_norm) << i;
        }
        for (const auto& [name, value] : first.parameters) {
          EXPECT_TRUE(ours.parameters.at(name).equal(value)) << name;
        }
      }
    }
  }
}

TEST(StageWindows, AWindowOfAMicroBatchMatchesOneRank) {
  const DecoderRun one{.model = kLlamaDecoder, .accumulation = 4};
  const DecoderOutcome alone = RunDecoder(one, 1, kTrainedSteps);
  for (const WindowOrder& order : kOrders) {
    for (const int zero : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} ZeRO {}", NameOf(order.kind), zero));
      DecoderRun run = MakeRun(order, zero, /*micro_batches=*/4);
      run.most_in_window = 100;
      const DecoderOutcome ours = RunDecoder(run, 4, kTrainedSteps);
      ExpectSameSteps(alone.steps, ours.steps);
      ExpectSameParameters(alone, ours);
    }
  }
}

}  // namespace
}  // namespace ds::tests
