// Stages of a pipeline, each with an engine of its own blocks, train what one engine with all of
// them does.

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/engine/executor.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using pipeline::ScheduleKind;
using ::testing::HasSubstr;

constexpr std::int64_t kHopWidth = 6;
constexpr int kHops = 6, kHopReaders = 2, kHopBatches = 4, kHopSteps = 2;

// The first block reads the batch and leaves an extra that the last one uses.
class Hop : public Block {
 public:
  explicit Hop(int index) : Block("hop." + std::to_string(index)), index_(index) {
    weight_ =
        register_parameter("weight", models::UnmaterialisedParameter({kHopWidth, kHopWidth}, {}));
  }
  Bundle forward(Bundle bundle) override {
    const at::Tensor& input = index_ == 0 ? bundle.tensor("input") : bundle.hidden;
    bundle.hidden = at::tanh(at::linear(input, weight_));
    if (index_ == 0) bundle.extras["first"] = bundle.hidden * 0.5;
    if (index_ == kHops - 1) {
      bundle.loss = at::mse_loss(bundle.hidden + bundle.extras["first"], bundle.tensor("labels"));
    }
    return bundle;
  }

 private:
  const int index_;
  at::Tensor weight_;
};

std::shared_ptr<BlockList> MakeHops(int first, int end) {
  auto model = std::make_shared<BlockList>();
  for (int i = first; i < end; ++i) model->Add(std::make_shared<Hop>(i));
  return model;
}

// Micro-batches have as many samples as their number says, and one more.
Bundle HopBatch(int reader, int micro_batch) {
  const std::int64_t samples = micro_batch % kHopBatches + 1;
  const at::Tensor input =
      (at::arange(samples * kHopWidth, at::kFloat) + micro_batch + 0.5 * reader).sin();
  const at::Tensor shaped = input.view({samples, kHopWidth});
  return {.batch = {{"input", shaped}, {"labels", shaped.roll(1, -1)}}};
}

std::unique_ptr<Engine> MakeHopEngine(int first, int end, int zero_stage,
                                      comm::Communicator& world) {
  // What stages would have to settle with each other is left out.
  const TinyRun run{.stage = zero_stage, .accumulation = kHopBatches, .gradient_clipping = 0.0};
  return Engine::create(MakeHops(first, end), TinyConfig(run), {.world = &world}).value();
}

StepResult RunHops(Engine& engine, const pipeline::StageProgram& program, int reader,
                   engine::StageChannels* channels) {
  int micro_batch = static_cast<int>(engine.finished_steps()) * kHopBatches;
  const auto next = [&]() -> StatusOr<Bundle> { return HopBatch(reader, micro_batch++); };
  return engine::Executor(engine).Run(program, next, channels).value();
}

// Ranks are stage-major; those of a stage read different samples.
void ExpectStagesTrainAsOne(ScheduleKind kind, int stages, int zero_stage) {
  testing::RunRanks(stages * kHopReaders, [&](comm::Communicator& world) {
    const int stage = world.rank() / kHopReaders, reader = world.rank() % kHopReaders;
    std::vector<int> readers, of_stages;
    for (int i = 0; i < kHopReaders; ++i) readers.push_back(stage * kHopReaders + i);
    for (int i = 0; i < stages; ++i) of_stages.push_back(i * kHopReaders + reader);
    comm::Communicator& data = world.Group("stage " + std::to_string(stage), readers);
    engine::StageChannels channels(world.Group("pipeline " + std::to_string(reader), of_stages));
    const auto schedule =
        pipeline::Schedule::Create(kind, {.stages = stages, .micro_batches = kHopBatches});
    const auto program = PlanStagePrograms(schedule.value())[static_cast<std::size_t>(stage)];
    const int blocks = kHops / stages;
    const auto part = MakeHopEngine(stage * blocks, (stage + 1) * blocks, zero_stage, data);
    const auto whole = MakeHopEngine(0, kHops, zero_stage, data);
    for (int step = 0; step < kHopSteps; ++step) {
      const StepResult ours = RunHops(*part, program, reader, &channels);
      const StepResult theirs = RunHops(*whole, pipeline::PlanStep(kHopBatches), reader, nullptr);
      EXPECT_EQ(ours.loss, stage == stages - 1 ? theirs.loss : 0.0);
    }
    const auto ours = ExportAll(*part), theirs = ExportAll(*whole);
    EXPECT_EQ(ours.size(), reader == 0 ? static_cast<std::size_t>(blocks) : 0U);
    for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
  });
}

TEST(Stages, TrainWhatOneEngineOfAllTheirBlocksTrains) {
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kOneForwardOneBackward}) {
    for (const int stages : {2, 3}) {
      for (const int zero_stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(::testing::Message()
                     << NameOf(kind) << ", " << stages << " stages, ZeRO " << zero_stage);
        ExpectStagesTrainAsOne(kind, stages, zero_stage);
      }
    }
  }
}

TEST(Stages, WhatIsNotBuiltIsRefusedBeforeABatchIsTaken) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const auto engine = MakeHopEngine(0, kHops, /*zero_stage=*/0, world);
    const auto refusal = [&](ScheduleKind kind, const pipeline::PipelineShape& shape) {
      const auto next = []() -> StatusOr<Bundle> { return InternalError("a batch was taken"); };
      const auto schedule = pipeline::Schedule::Create(kind, shape);
      const auto program = PlanStagePrograms(schedule.value()).front();
      return engine::Executor(*engine).Run(program, next).status().message();
    };
    EXPECT_THAT(refusal(ScheduleKind::kGPipe, {.stages = 2, .micro_batches = 2}),
                HasSubstr("messages for or from stage 1, and no channels"));
    EXPECT_THAT(refusal(ScheduleKind::kZeroBubbleH1, {.micro_batches = 2}),
                HasSubstr("a backward pass in two parts"));
    EXPECT_THAT(refusal(ScheduleKind::kZeroBubbleV, {.chunks = 2, .micro_batches = 2}),
                HasSubstr("a stage of several chunks is not built"));
  });
}

}  // namespace
}  // namespace ds::tests
