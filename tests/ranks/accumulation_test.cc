// How many micro-batches a step has, who decides that, and when their gradients go between ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/observed_backend.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Engine> MakeEngine(const TinyRun& run, comm::Communicator& world,
                                   const config::DsConfig& config) {
  return Engine::create(MakeTinyModel(run.shape, run.dtype()), config, {.world = &world}).value();
}

void ExpectSameParameters(Engine& a, Engine& b) {
  const auto ours = ExportAll(a), theirs = ExportAll(b);
  for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
}

// Of accumulated gradients that are not divided by the number of micro-batches.
TEST(Backward, WithoutScaleWrtGasTakesTheLossAsItIs) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      // A power of two, so that dividing by it is exact.
      const TinyRun run{.stage = stage, .accumulation = 4, .gradient_clipping = 0.0};
      const auto engine = MakeTinyEngine(run, world);
      const auto plain = MakeTinyEngine(run, world);
      const auto divided = MakeTinyEngine(run, world);
      for (int i = 0; i < 4; ++i) {
        engine->backward(engine->forward(TinyBatch(run, world, i)), /*scale_wrt_gas=*/false);
        const at::Tensor loss = divided->forward(TinyBatch(run, world, i));
        divided->backward(loss / 4, /*scale_wrt_gas=*/false);
        RunMicroBatch(*plain, run, i);
      }
      const at::Tensor gradient = TensorAccess(*plain).GetFullGrad("layer.1.w").value();
      EXPECT_TRUE(TensorAccess(*engine).GetFullGrad("layer.1.w").value().equal(gradient * 4));
      const StepResult expected = plain->step().value();
      const StepResult sum = engine->step().value();
      EXPECT_EQ(sum.grad_norm, expected.grad_norm * 4);
      EXPECT_NEAR(sum.loss, expected.loss * 4, 1e-6);
      // Divided by the caller it is the step that the engine divides itself.
      const StepResult same = divided->step().value();
      EXPECT_EQ(same.grad_norm, expected.grad_norm);
      EXPECT_NEAR(same.loss, expected.loss, 1e-6);
      ExpectSameParameters(*divided, *plain);
    });
  }
}

TEST(UnmanagedAccumulation, EveryStepUpdatesWithTheGradientsSoFar) {
  for (const int stage : {0, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      TinyRun run{.stage = stage, .accumulation = 3};
      config::DsConfig unmanaged = TinyConfig(run);
      unmanaged.managed_gradient_accumulation = false;
      const auto engine = MakeEngine(run, world, unmanaged);
      // As many as a managed engine takes: the same numbers.
      for (int i = 0; i < 3; ++i) RunMicroBatch(*engine, run, i);
      EXPECT_TRUE(engine->step().value().boundary);
      const auto managed = MakeTinyEngine(run, world);
      TrainTiny(*managed, run, 1);
      ExpectSameParameters(*engine, *managed);
      // And any other number.
      RunMicroBatch(*engine, run, 3);
      EXPECT_TRUE(engine->step().value().boundary);
      EXPECT_TRUE(DeepSpeedApi(*engine).was_step_applied());
      EXPECT_EQ(DeepSpeedApi(*engine).global_samples(), 24 + 8);
      EXPECT_THAT(engine->step().status().message(), HasSubstr("0 micro-batches"));
    });
  }
}

// Micro-batches whose forward passes come before the first one's backward.
TEST(Backward, ShardsTheGradientsOfSeveralForwardPasses) {
  for (const int stage : {2, 3}) {
    for (const bool at_once : {false, true}) {
      testing::RunRanks(2, [&](comm::Communicator& host) {
        int reductions = 0;
        const auto count = [&](c10d::OpType op, const at::Tensor&) {
          if (op == c10d::OpType::_REDUCE_SCATTER_BASE) ++reductions;
        };
        comm::Communicator world(c10::make_intrusive<ObservedBackend>(host.backend(), count));
        const TinyRun run{.stage = stage, .accumulation = 2};
        config::DsConfig unmanaged = TinyConfig(run);
        unmanaged.managed_gradient_accumulation = false;
        const auto engine = MakeEngine(run, world, unmanaged);
        const at::Tensor first = engine->forward(TinyBatch(run, world, 0));
        const at::Tensor second = engine->forward(TinyBatch(run, world, 1));
        if (at_once) {
          engine->backward(first + second);
        } else {
          engine->backward(first);
          engine->backward(second);
        }
        const int in_backward = reductions;
        EXPECT_TRUE(engine->step().ok());
        EXPECT_EQ(reductions, in_backward) << "the step has found gradients that are whole";
        const auto one_by_one = MakeTinyEngine(run, world);
        TrainTiny(*one_by_one, run, 1);
        const auto ours = ExportAll(*engine), theirs = ExportAll(*one_by_one);
        for (const auto& [name, value] : ours) {
          EXPECT_TRUE(value.allclose(theirs.at(name), 0, at_once ? 1e-4 : 0)) << name;
        }
      });
    }
  }
}

TEST(Boundary, IsInTheFolderOfTheUser) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 2, .accumulation = 3};
    const auto engine = MakeTinyEngine(run, world);
    EXPECT_TRUE(DeepSpeedApi(*engine).set_gradient_accumulation_boundary(false).ok());
    for (int i = 0; i < 4; ++i) RunMicroBatch(*engine, run, i);
    EXPECT_FALSE(DeepSpeedApi(*engine).is_gradient_accumulation_boundary());
    EXPECT_FALSE(engine->step().value().boundary) << "four micro-batches, and the user says no";
    EXPECT_TRUE(DeepSpeedApi(*engine).set_gradient_accumulation_boundary(true).ok());
    EXPECT_TRUE(DeepSpeedApi(*engine).is_gradient_accumulation_boundary());
    RunMicroBatch(*engine, run, 4);
    EXPECT_TRUE(engine->step().value().boundary);
    EXPECT_TRUE(DeepSpeedApi(*engine).was_step_applied());
    EXPECT_EQ(DeepSpeedApi(*engine).micro_steps(), 5);
    EXPECT_EQ(engine->finished_steps(), 1);
    EXPECT_THAT(engine->step().status().message(), HasSubstr("0 micro-batches"));
    config::DsConfig unmanaged = TinyConfig(run);
    unmanaged.managed_gradient_accumulation = false;
    const auto engine_of_user = MakeEngine(run, world, unmanaged);
    EXPECT_THAT(DeepSpeedApi(*engine_of_user).set_gradient_accumulation_boundary(true).message(),
                HasSubstr("where step() is called"));
  });
}

// As in DeepSpeed from before its forward to its step, however often step() is called.
TEST(Boundary, IsTheLastMicroBatchFromItsBeginningOn) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    for (const bool step_every_time : {false, true}) {
      const TinyRun run{.stage = 1, .accumulation = 3};
      const auto engine = MakeTinyEngine(run, world);
      for (int i = 0; i < 6; ++i) {
        const bool is_last = i % 3 == 2;
        // Before its forward, what is in progress is the micro-batch before, if no step() ended it.
        EXPECT_EQ(DeepSpeedApi(*engine).is_gradient_accumulation_boundary(),
                  is_last && step_every_time);
        const at::Tensor loss = engine->forward(TinyBatch(run, world, i));
        EXPECT_EQ(DeepSpeedApi(*engine).is_gradient_accumulation_boundary(), is_last) << i;
        engine->backward(loss);
        EXPECT_EQ(DeepSpeedApi(*engine).is_gradient_accumulation_boundary(), is_last) << i;
        if (step_every_time || is_last) {
          EXPECT_EQ(engine->step().value().boundary, is_last);
        }
      }
    }
    const TinyRun plain{.stage = 1};
    const auto engine = MakeTinyEngine(plain, world);
    EXPECT_TRUE(DeepSpeedApi(*engine).is_gradient_accumulation_boundary())
        << "every micro-batch is the last";
    TrainTiny(*engine, plain, 1);
    EXPECT_TRUE(DeepSpeedApi(*engine).is_gradient_accumulation_boundary());
  });
}

TEST(NoSync, HoldsBackwardLocalAndRefusesSteps) {
  for (const int stage : {0, 1}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 3};
      const auto engine = MakeTinyEngine(run, world);
      {
        const auto scope = DeepSpeedApi(*engine).no_sync().value();
        for (int i = 0; i < 2; ++i) {
          // One rank after the other: were backward collective, the first would wait for good.
          for (int writer = 0; writer < world.size(); ++writer) {
            if (writer == world.rank()) RunMicroBatch(*engine, run, i);
            world.Barrier();
          }
          EXPECT_THAT(engine->step().status().message(), HasSubstr("inside the scope of no_sync"));
        }
        EXPECT_THAT(DeepSpeedApi(*engine).no_sync().status().message(), HasSubstr("another one"));
      }
      EXPECT_TRUE(DeepSpeedApi(*engine).no_sync().ok()) << "the scope has ended";
      RunMicroBatch(*engine, run, 2);
      EXPECT_TRUE(engine->step().value().boundary);
      const auto plain = MakeTinyEngine(run, world);
      TrainTiny(*plain, run, 1);
      ExpectSameParameters(*engine, *plain);
    });
  }
}

TEST(NoSync, IsRefusedWhereGradientsAreSharded) {
  for (const int stage : {2, 3}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      const auto engine = MakeTinyEngine({.stage = stage}, world);
      EXPECT_THAT(DeepSpeedApi(*engine).no_sync().status().message(),
                  HasSubstr("cannot be combined with ZeRO stage " + std::to_string(stage)));
    });
  }
}

// Sums the micro-batches before the ranks, as stages 0 and 1 do, and has their bits.
TEST(CoalescedReduction, HappensOnceWhenTheStepEnds) {
  for (const int stage : {1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 3};
      const auto engine = MakeTinyEngine(run, world);
      {
        const auto scope = DeepSpeedApi(*engine).coalesce_grad_reduction().value();
        for (int i = 0; i < 3; ++i) {
          // Stage 3 gathers parameters; elsewhere nothing may wait for the other rank.
          for (int writer = 0; writer < world.size(); ++writer) {
            if (stage == 3 ? writer == 0 : writer == world.rank()) RunMicroBatch(*engine, run, i);
            world.Barrier();
          }
        }
        EXPECT_THAT(engine->step().status().message(), HasSubstr("coalesce_grad_reduction"));
        EXPECT_THAT(DeepSpeedApi(*engine).coalesce_grad_reduction().status().message(),
                    HasSubstr("another one"));
      }
      EXPECT_TRUE(engine->step().value().boundary);
      const auto plain = MakeTinyEngine({.stage = 0, .accumulation = 3}, world);
      TrainTiny(*plain, run, 1);
      EXPECT_EQ(DeepSpeedApi(*engine).global_grad_norm(), DeepSpeedApi(*plain).global_grad_norm());
      ExpectSameParameters(*engine, *plain);
    });
  }
}

TEST(CoalescedReduction, RunsABackwardPassAfterItsScope) {
  for (const int stage : {2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 4};
      const auto engine = MakeTinyEngine(run, world);
      RunMicroBatch(*engine, run, 0);
      {
        const auto scope = DeepSpeedApi(*engine).coalesce_grad_reduction().value();
        for (int i = 1; i < 3; ++i) RunMicroBatch(*engine, run, i);
      }
      RunMicroBatch(*engine, run, 3);
      const at::Tensor ours = TensorAccess(*engine).GetFullGrad("layer.1.w").value();
      const auto plain = MakeTinyEngine(run, world);
      for (int i = 0; i < 4; ++i) RunMicroBatch(*plain, run, i);
      EXPECT_TRUE(ours.allclose(TensorAccess(*plain).GetFullGrad("layer.1.w").value(), 1e-5, 1e-7));
      EXPECT_TRUE(engine->step().value().boundary);
    });
  }
}

// 24 samples a step on two ranks.
std::unique_ptr<Engine> MakeEngineOfTwo(const TinyRun& run, comm::Communicator& world) {
  config::DsConfig config = TinyConfig(run);
  config.batch = {.train_batch_size = 24,
                  .train_micro_batch_size_per_gpu = 12 / run.accumulation,
                  .gradient_accumulation_steps = run.accumulation};
  return MakeEngine(run, world, config);
}

TEST(BatchSizes, ChangeBetweenSteps) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 2, .accumulation = 3};
    const auto engine = MakeEngineOfTwo(run, world);
    EXPECT_TRUE(DeepSpeedApi(*engine).set_train_batch_size(8).ok());
    EXPECT_EQ(engine->gradient_accumulation_steps(), 1);
    EXPECT_EQ(DeepSpeedApi(*engine).batch_sizes().train_micro_batch_size_per_gpu, 4);
    RunMicroBatch(*engine, run, 0);
    EXPECT_TRUE(DeepSpeedApi(*engine).is_gradient_accumulation_boundary());
    EXPECT_THAT(DeepSpeedApi(*engine).set_train_batch_size(24).message(),
                HasSubstr("between steps"));
    EXPECT_TRUE(engine->step().value().boundary);
    EXPECT_THAT(DeepSpeedApi(*engine).set_train_batch_size(12).message(), HasSubstr("16"));
    EXPECT_EQ(DeepSpeedApi(*engine).batch_sizes().train_batch_size, 8) << "refused, so as it was";
    EXPECT_TRUE(DeepSpeedApi(*engine).set_train_batch_size(24).ok());
    EXPECT_TRUE(DeepSpeedApi(*engine).set_train_micro_batch_size(2).ok());
    EXPECT_EQ(DeepSpeedApi(*engine).batch_sizes().train_batch_size, 12);
    EXPECT_EQ(engine->gradient_accumulation_steps(), 3);
  });
}

// The step that a changed batch takes is the one of an engine that has always had it.
TEST(BatchSizes, ScaleTheLossOfTheStepsToCome) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 1, .accumulation = 3};
    const auto engine = MakeEngineOfTwo({.stage = 1, .accumulation = 1}, world);
    EXPECT_TRUE(DeepSpeedApi(*engine).set_train_micro_batch_size(4).ok());
    EXPECT_TRUE(DeepSpeedApi(*engine).set_train_batch_size(24).ok());
    TrainTiny(*engine, run, 2);
    const auto plain = MakeTinyEngine(run, world);
    TrainTiny(*plain, run, 2);
    ExpectSameParameters(*engine, *plain);
  });
}

}  // namespace
}  // namespace ds::tests
