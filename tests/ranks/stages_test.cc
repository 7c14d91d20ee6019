// Stages of a pipeline, of blocks that a user has made, train what one engine with all of them
// does.

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/comm/communicator.h"
#include "runtime/engine/executor.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using pipeline::ScheduleKind;
using pipeline::VirtualStages;
using ::testing::HasSubstr;

constexpr std::int64_t kHopWidth = 6;
constexpr int kHops = 6, kHopReaders = 2, kHopBatches = 6, kHopSteps = 2;

// Counts the micro-batches whose activations a stage holds.
struct HeldCount {
  int now = 0, most = 0;
};

// The first block reads the batch and leaves an extra that the last one uses.
class Hop : public Block {
 public:
  Hop(int index, HeldCount* held)
      : Block("hop." + std::to_string(index)), index_(index), held_(held) {
    weight_ =
        register_parameter("weight", models::UnmaterialisedParameter({kHopWidth, kHopWidth}, {}));
  }
  Bundle forward(Bundle bundle) override {
    const at::Tensor& input = index_ == 0 ? bundle.tensor("input") : bundle.hidden;
    bundle.hidden = at::tanh(at::linear(input, weight_));
    if (held_ != nullptr) bundle.hidden = bundle.hidden * MakeCountedOne();
    if (index_ == 0) bundle.extras["first"] = bundle.hidden * 0.5;
    if (index_ == kHops - 1) {
      bundle.loss = at::mse_loss(bundle.hidden + bundle.extras["first"], bundle.tensor("labels"));
    }
    return bundle;
  }

 private:
  // The graph holds it until its backward has run.
  at::Tensor MakeCountedOne() {
    held_->most = std::max(held_->most, ++held_->now);
    return at::from_blob(
        &one_, {1}, [held = held_](void*) { --held->now; }, at::kFloat);
  }

  const int index_;
  HeldCount* const held_;  // null: nobody counts
  float one_ = 1.0F;
  at::Tensor weight_;
};

// Of all blocks, or of a stage's: there the first one of each chunk counts.
std::shared_ptr<BlockList> MakeHops(int stage, const VirtualStages& virtual_stages,
                                    HeldCount* held = nullptr) {
  const int blocks = kHops / virtual_stages.count();
  auto model = std::make_shared<BlockList>();
  models::StageBlocks part{.stage = stage, .stages = virtual_stages.stages, .all = kHops};
  for (int chunk = 0; chunk < virtual_stages.chunks; ++chunk) {
    const int first = virtual_stages.At({stage, chunk}) * blocks;
    part.chunks.push_back({first, first + blocks});
    for (int i = first; i < first + blocks; ++i) {
      model->Add(std::make_shared<Hop>(i, i == first ? held : nullptr));
    }
  }
  if (virtual_stages.stages > 1) model->SetPart(part);
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

std::unique_ptr<Engine> MakeHopEngine(std::shared_ptr<BlockList> model, ScheduleKind kind,
                                      int zero_stage, comm::Communicator& world) {
  // The squares of a norm would be added up in another order, and bits are compared.
  config::DsConfig config =
      TinyConfig({.stage = zero_stage, .accumulation = kHopBatches, .gradient_clipping = 0.0});
  config.parallel.pipeline = model->part() ? model->part()->stages : 1;
  return Engine::create(std::move(model), config, {.world = &world, .schedule = kind}).value();
}

StepResult RunHops(Engine& engine, int reader) {
  int micro_batch = static_cast<int>(engine.finished_steps()) * kHopBatches;
  return engine::TrainStep(engine,
                           [&]() -> StatusOr<Bundle> { return HopBatch(reader, micro_batch++); })
      .value();
}

// Ranks are stage-major; those of a stage read different samples.
void ExpectStagesTrainAsOne(const VirtualStages& virtual_stages, int zero_stage) {
  testing::RunRanks(virtual_stages.stages * kHopReaders, [&](comm::Communicator& world) {
    const int stage = world.rank() / kHopReaders, reader = world.rank() % kHopReaders;
    std::vector<int> readers;
    for (int i = 0; i < kHopReaders; ++i) readers.push_back(stage * kHopReaders + i);
    comm::Communicator& data = world.Group("readers " + std::to_string(stage), readers);
    const auto part =
        MakeHopEngine(MakeHops(stage, virtual_stages), virtual_stages.kind, zero_stage, world);
    // Stages add micro-batches up before they reduce them, as ZeRO 1 does without stages.
    const auto full =
        MakeHopEngine(MakeHops(0, {}), virtual_stages.kind, std::min(zero_stage, 1), data);
    EXPECT_EQ(part->parameter_count(), full->parameter_count());
    for (int step = 0; step < kHopSteps; ++step) {
      const StepResult ours = RunHops(*part, reader), theirs = RunHops(*full, reader);
      EXPECT_EQ(ours.loss, theirs.loss);
      EXPECT_DOUBLE_EQ(ours.grad_norm, theirs.grad_norm);
      EXPECT_EQ(ours.samples, theirs.samples);
    }
    const auto ours = ExportAll(*part), theirs = ExportAll(*full);
    EXPECT_EQ(ours.size(), world.rank() == 0 ? static_cast<std::size_t>(kHops) : 0U);
    for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
  });
}

constexpr VirtualStages kVirtualStages[] = {{ScheduleKind::kGPipe, 2},
                                            {ScheduleKind::kGPipe, 3},
                                            {ScheduleKind::kOneForwardOneBackward, 2},
                                            {ScheduleKind::kOneForwardOneBackward, 3},
                                            {ScheduleKind::kInterleaved, 2, 3},
                                            {ScheduleKind::kInterleaved, 3, 2},
                                            {ScheduleKind::kZeroBubbleH1, 2},
                                            {ScheduleKind::kZeroBubbleH1, 3},
                                            {ScheduleKind::kZeroBubbleV, 3, 2}};

std::string Describe(const VirtualStages& virtual_stages) {
  return std::string(NameOf(virtual_stages.kind)) + ", " + std::to_string(virtual_stages.stages) +
         " stages of " + std::to_string(virtual_stages.chunks) + " chunks";
}

TEST(Stages, MatchOneEngineOfAllBlocks) {
  for (const VirtualStages& virtual_stages : kVirtualStages) {
    for (const int zero_stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(Describe(virtual_stages) + ", ZeRO " + std::to_string(zero_stage));
      ExpectStagesTrainAsOne(virtual_stages, zero_stage);
    }
  }
}

// Of a stage whose blocks are all frozen no gradients go back, and none come.
TEST(Stages, AFrozenStageLeavesTheOthersTheirTraining) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    comm::Communicator& alone =
        world.Group("alone " + std::to_string(world.rank()), {world.rank()});
    const auto make = [&](int stage, int stages, comm::Communicator& ranks) {
      const auto model = MakeHops(stage, {.stages = stages});
      for (int i = 0; i < model->size() && model->index_in_model(i) < kHops / 2; ++i) {
        for (const at::Tensor& weight : model->block(i).parameters())
          weight.set_requires_grad(false);
      }
      return MakeHopEngine(model, ScheduleKind::kOneForwardOneBackward, /*zero_stage=*/1, ranks);
    };
    const auto part = make(world.rank(), 2, world), full = make(0, 1, alone);
    for (int step = 0; step < kHopSteps; ++step) {
      EXPECT_EQ(RunHops(*part, 0).loss, RunHops(*full, 0).loss);
    }
    const auto ours = ExportAll(*part), theirs = ExportAll(*full);
    for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
  });
}

TEST(Stages, HoldTheActivationsOfTheMicroBatchesOfTheSchedule) {
  std::vector<VirtualStages> all(std::begin(kVirtualStages), std::end(kVirtualStages));
  all.push_back({ScheduleKind::kOneForwardOneBackward, 6});
  for (const VirtualStages& virtual_stages : all) {
    SCOPED_TRACE(Describe(virtual_stages));
    testing::RunRanks(virtual_stages.stages, [&](comm::Communicator& world) {
      HeldCount held;
      const auto engine = MakeHopEngine(MakeHops(world.rank(), virtual_stages, &held),
                                        virtual_stages.kind, 0, world);
      RunHops(*engine, /*reader=*/0);
      const auto schedule =
          pipeline::PipelineSchedule::Create(virtual_stages.kind, {.stages = virtual_stages.stages,
                                                                   .chunks = virtual_stages.chunks,
                                                                   .micro_batches = kHopBatches});
      const int counted = schedule.value().CountHeld(world.rank());
      if (virtual_stages.kind == ScheduleKind::kZeroBubbleH1 ||
          virtual_stages.kind == ScheduleKind::kZeroBubbleV) {
        EXPECT_LE(held.most, counted) << "these blocks keep nothing for their weights";
      } else {
        EXPECT_EQ(held.most, counted);
      }
      EXPECT_EQ(held.now, 0);
    });
  }
}

TEST(Stages, RefusesUnsupportedFeaturesBeforeABatchIsTaken) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const auto engine =
        MakeHopEngine(MakeHops(0, {}), ScheduleKind::kGPipe, /*zero_stage=*/0, world);
    const auto refusal = [&](ScheduleKind kind, const pipeline::PipelineShape& shape) {
      const auto next = []() -> StatusOr<Bundle> { return InternalError("a batch was taken"); };
      const auto schedule = pipeline::PipelineSchedule::Create(kind, shape);
      const auto program = PlanStagePrograms(schedule.value()).front();
      return engine::Executor(*engine).Run(program, next).status().message();
    };
    EXPECT_THAT(refusal(ScheduleKind::kGPipe, {.stages = 2, .micro_batches = 2}),
                HasSubstr("messages for or from stage 1, and no channels"));
    EXPECT_THAT(refusal(ScheduleKind::kZeroBubbleV, {.chunks = 2, .micro_batches = 2}),
                HasSubstr("the step has a chunk 1, and the model 1"));
  });
}

}  // namespace
}  // namespace ds::tests
