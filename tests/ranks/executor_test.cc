// A step is a list of instructions, whose order is a matter of memory and not of numbers.

#include "runtime/engine/executor.h"

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using pipeline::Task;
using ::testing::HasSubstr;
using Instruct = pipeline::Instruction::Kind;

pipeline::Instruction Forward(int micro_batch) {
  return {Instruct::kCompute, {Task::Kind::kForward, /*chunk=*/0, micro_batch}};
}
pipeline::Instruction Backward(int micro_batch) {
  return {Instruct::kCompute, {Task::Kind::kBackward, /*chunk=*/0, micro_batch}};
}

// F0 F1 B0 F2 B1 B2 Reduce Step: two micro-batches' activations at a time.
pipeline::StageProgram PlanAhead() {
  return {Forward(0),  Forward(1),  Backward(0),         Forward(2),
          Backward(1), Backward(2), {Instruct::kReduce}, {Instruct::kStep}};
}

StepResult RunPlan(Engine& engine, const TinyRun& run, const pipeline::StageProgram& plan) {
  std::int64_t micro_batch = engine.finished_steps() * run.accumulation;
  const auto next = [&]() -> StatusOr<Bundle> {
    return TinyBatch(run, engine.world(), micro_batch++);
  };
  return engine::Executor(engine).Run(plan, next).value();
}

TEST(Executor, GivesTheSameBitsWhenForwardsRunAhead) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 3};
      const auto ahead = MakeTinyEngine(run, world), plain = MakeTinyEngine(run, world);
      for (int step = 0; step < 2; ++step) {
        const StepResult ours = RunPlan(*ahead, run, PlanAhead());
        const StepResult theirs = RunPlan(*plain, run, pipeline::PlanStep(3));
        EXPECT_EQ(ours.loss, theirs.loss);
        EXPECT_EQ(ours.grad_norm, theirs.grad_norm);
      }
      const auto ours = ExportAll(*ahead), theirs = ExportAll(*plain);
      for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
    });
  }
}

TEST(Executor, RefusesInvalidStepsBeforeItTakesABatch) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const auto engine = MakeTinyEngine({.stage = 0}, world);
    bool taken = false;
    const auto next = [&]() -> StatusOr<Bundle> {
      taken = true;
      return Bundle{};
    };
    pipeline::StageProgram plan = pipeline::PlanStep(2);
    plan.pop_back();
    EXPECT_THAT(engine::Executor(*engine).Run(plan, next).status().message(),
                HasSubstr("F0 B0 F1 B1 Reduce"));
    EXPECT_FALSE(taken);
  });
}

TEST(Executor, EndsNoStepBeforeItsBoundary) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 0, .accumulation = 2};
    const auto engine = MakeTinyEngine(run, world);
    EXPECT_FALSE(RunPlan(*engine, run, pipeline::PlanStep(1)).boundary);
    EXPECT_EQ(DeepSpeedApi(*engine).micro_steps(), 1);
    EXPECT_TRUE(RunPlan(*engine, run, pipeline::PlanStep(1)).boundary);
    EXPECT_EQ(engine->finished_steps(), 1);
  });
}

class OneUnit : public Block {
 public:
  OneUnit() : Block("net") { weight_ = register_parameter("weight", at::full({4, 4}, 0.25)); }
  Bundle forward(Bundle bundle) override {
    bundle.loss =
        at::mse_loss(at::linear(bundle.tensor("input"), weight_), bundle.tensor("labels"));
    return bundle;
  }

 private:
  at::Tensor weight_;
};

// Of one unit every call matches, so that nothing but the plans tells that one rank has reduced in
// its backward pass and the other in the step.
TEST(Executor, NamesTheRankThatHasGoneByAnotherPlan) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    model->Add(std::make_shared<OneUnit>());
    const auto engine = Engine::create(model, TinyConfig({.stage = 2}), {.world = &world}).value();
    const auto run = [&] {
      const at::Tensor input = at::full({2, 4}, 1.0 + world.rank());
      engine->backward(engine->forward({.batch = {{"input", input}, {"labels", input + 1}}}));
    };
    run();
    EXPECT_TRUE(engine->step().ok());
    if (world.rank() == 1) {
      const auto scope = DeepSpeedApi(*engine).coalesce_grad_reduction().value();
      run();
    } else {
      run();
    }
    const Status status = engine->step().status();
    EXPECT_THAT(status.message(), HasSubstr("rank 1 has gathered parameters and reduced"));
    EXPECT_EQ(engine->finished_steps(), 1);
  });
}

}  // namespace
}  // namespace ds::tests
