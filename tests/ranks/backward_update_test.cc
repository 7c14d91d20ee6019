// With super_offload blocks are updated in the backward pass: the bits are those of updates behind
// it, and what does not go with that is refused. Gradients do not lie anywhere, unless the step may
// be clipped or skipped once its norm is known; then such updates are taken back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/isa_probe.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using config::OffloadDevice;
using device::MemoryTier;
using device::MemoryUse;
using ::testing::HasSubstr;

constexpr int kUpdateSteps = 3;

// A shard of the table is several turns, a layer is one.
constexpr TinyShape kUpdateShape{.vocabulary = 300, .width = 48, .layers = 2};

struct Updates {
  bool in_backward = true;
  OffloadDevice optimizer = OffloadDevice::kNvme;
  bool parameters = false;  // in files, too
  bool pipelined = false;
  engine::NonFinitePolicy non_finite = engine::NonFinitePolicy::kAsConfigured;
};

TinyRun Unclipped(int stage, std::int64_t accumulation = 1,
                  Precision precision = Precision::kFp32) {
  return {.stage = stage,
          .accumulation = accumulation,
          .gradient_clipping = 0.0,
          .precision = precision,
          .shape = kUpdateShape};
}

StatusOr<std::unique_ptr<Engine>> CreateUpdatingEngine(TinyRun run, const Updates& updates,
                                                       const std::string& folder,
                                                       comm::Communicator& world,
                                                       device::MemoryLedger* ledger) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  run.zero.sub_group_size = 2048;
  run.zero.offload_optimizer = {.device = updates.optimizer,
                                .nvme_path = {folder},
                                .pipeline_read = updates.pipelined,
                                .pipeline_write = updates.pipelined,
                                .super_offload = updates.in_backward};
  if (updates.parameters) {
    run.zero.offload_param = {
        .device = OffloadDevice::kNvme, .nvme_path = {folder}, .max_in_cpu = 0};
  }
  config::DsConfig config = TinyConfig(run);
  config.aio.block_size = 4096;
  return Engine::create(MakeTinyModel(run.shape, run.dtype()), config,
                        {.world = &world,
                         .ledger = ledger,
                         .non_finite = updates.non_finite,
                         .parameter_group = run.groups});
}

std::unique_ptr<Engine> MakeUpdatingEngine(const TinyRun& run, const Updates& updates,
                                           const std::string& folder, comm::Communicator& world,
                                           device::MemoryLedger* ledger = nullptr) {
  return CreateUpdatingEngine(run, updates, folder, world, ledger).value();
}

struct UpdatedInBackward {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

UpdatedInBackward TrainUpdating(const TinyRun& run, const Updates& updates, int ranks) {
  const testing::TemporaryFolder folder;
  UpdatedInBackward trained;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = MakeUpdatingEngine(run, updates, folder.path().string(), world);
    auto steps = TrainTiny(*engine, run, kUpdateSteps);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) trained = {std::move(steps), std::move(parameters)};
  });
  return trained;
}

void ExpectSame(const UpdatedInBackward& a, const UpdatedInBackward& b) {
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (const auto& [name, value] : a.parameters) {
    EXPECT_TRUE(value.equal(b.parameters.at(name))) << name;
  }
}

// Calls `body` with an unclipped run of every stage, precision and accumulation.
template <typename Body>
void ForEveryRun(const Body& body) {
  for (const int stage : {1, 2, 3}) {
    for (const Precision precision :
         {Precision::kFp32, Precision::kBf16, Precision::kBf16Throughout}) {
      for (const std::int64_t accumulation : {1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << "stage " << stage << ", precision " << static_cast<int>(precision)
                     << ", accumulation " << accumulation);
        body(Unclipped(stage, accumulation, precision), stage);
      }
    }
  }
}

class BackwardUpdates : public ::testing::TestWithParam<int> {};

TEST_P(BackwardUpdates, MatchUpdatesAfterTheBackwardPassBitForBit) {
  ForEveryRun([&](const TinyRun& run, int stage) {
    const UpdatedInBackward expected =
        TrainUpdating(run, {.in_backward = false, .optimizer = OffloadDevice::kNone}, GetParam());
    ExpectSame(TrainUpdating(run, {.optimizer = OffloadDevice::kCpu}, GetParam()), expected);
    ExpectSame(TrainUpdating(run, {}, GetParam()), expected);
    ExpectSame(TrainUpdating(run, {.parameters = stage == 3, .pipelined = true}, GetParam()),
               expected);
  });
}

TEST_P(BackwardUpdates, TakeEveryOptimizerOfElements) {
  const std::vector<config::OptimizerAlgorithm> algorithms = {
      config::SgdConfig{.momentum = 0.9}, config::AdagradConfig{}, config::LionConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    SCOPED_TRACE(algorithm.index());
    TinyRun run = Unclipped(2);
    run.optimizer = algorithm;
    run.groups = optim::NoDecayOnNormsAndBiases;
    const UpdatedInBackward expected = TrainUpdating(run, {.in_backward = false}, GetParam());
    ExpectSame(TrainUpdating(run, {.pipelined = true}, GetParam()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, BackwardUpdates, ::testing::Values(1, 2, 3));

TEST(BackwardUpdate, GoesWithGroupsThatShardAmongThemselves) {
  TinyRun run = Unclipped(3, 2);
  run.zero.mics_shard_size = 2;
  ExpectSame(TrainUpdating(run, {}, 4), TrainUpdating(run, {.in_backward = false}, 4));
}

// A limit below all norms, one among them, and one above.
TEST_P(BackwardUpdates, AreMadeAgainWhereTheNormIsClipped) {
  ForEveryRun([&](TinyRun run, int stage) {
    const Updates after = {.in_backward = false, .optimizer = OffloadDevice::kNone};
    std::vector<double> norms;
    for (const StepResult& step : TrainUpdating(run, after, GetParam()).steps) {
      norms.push_back(step.grad_norm);
    }
    std::sort(norms.begin(), norms.end());
    ASSERT_LT(norms.front(), norms.back());
    for (const double limit :
         {norms.front() / 8, (norms.front() + norms.back()) / 2, norms.back() * 8}) {
      SCOPED_TRACE(limit);
      run.gradient_clipping = limit;
      const UpdatedInBackward expected = TrainUpdating(run, after, GetParam());
      ExpectSame(TrainUpdating(run, {.optimizer = OffloadDevice::kCpu}, GetParam()), expected);
      ExpectSame(TrainUpdating(run, {.parameters = stage == 3, .pipelined = true}, GetParam()),
                 expected);
    }
  });
}

// Steps of which the second one is skipped: what blocks have been updated by then goes back.
UpdatedInBackward TrainWithAPoisonedStep(const TinyRun& run, const Updates& updates, int ranks) {
  const testing::TemporaryFolder folder;
  UpdatedInBackward trained;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = MakeUpdatingEngine(run, updates, folder.path().string(), world);
    std::vector<StepResult> steps;
    for (int i = 0; i < kUpdateSteps; ++i) {
      Bundle bundle = TinyBatch(run, world, i);
      if (i == 1) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        bundle.extras["poison"] = at::full({}, nan, at::kFloat);
      }
      engine->backward(engine->forward(std::move(bundle)));
      steps.push_back(engine->step().value());
      EXPECT_EQ(steps.back().skipped, i == 1);
    }
    steps.erase(steps.begin() + 1);  // NaNs are not equal
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) trained = {std::move(steps), std::move(parameters)};
  });
  return trained;
}

TEST_P(BackwardUpdates, AreTakenBackWhereTheStepIsSkipped) {
  for (const int stage : {1, 2, 3}) {
    for (const Precision precision :
         {Precision::kFp32, Precision::kBf16, Precision::kBf16Throughout}) {
      SCOPED_TRACE(::testing::Message()
                   << "stage " << stage << ", precision " << static_cast<int>(precision));
      TinyRun run = Unclipped(stage, 1, precision);
      run.gradient_clipping = 0.05;
      constexpr auto kSkip = engine::NonFinitePolicy::kSkip;
      const UpdatedInBackward expected = TrainWithAPoisonedStep(
          run, {.in_backward = false, .optimizer = OffloadDevice::kNone, .non_finite = kSkip},
          GetParam());
      for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
        ExpectSame(
            TrainWithAPoisonedStep(run, {.optimizer = device, .non_finite = kSkip}, GetParam()),
            expected);
      }
    }
  }
}

// The scale begins too high for fp16, and falls until a step's gradients are finite.
UpdatedInBackward TrainInFp16(const Updates& updates, int ranks) {
  const testing::TemporaryFolder folder;
  UpdatedInBackward trained;
  TinyRun run = Unclipped(2);
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    config::DsConfig config = TinyConfig(run);
    config.fp16 = {.enabled = true, .initial_scale_power = 24, .hysteresis = 1};
    config.zero_optimization.sub_group_size = 2048;
    config.zero_optimization.offload_optimizer = {.device = updates.optimizer,
                                                  .nvme_path = {folder.path().string()},
                                                  .super_offload = updates.in_backward};
    config.aio.block_size = 4096;
    const auto engine =
        Engine::create(MakeTinyModel(run.shape, at::kHalf), config, {.world = &world}).value();
    auto steps = TrainTiny(*engine, run, 12);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) trained = {std::move(steps), std::move(parameters)};
  });
  return trained;
}

TEST_P(BackwardUpdates, FollowTheLossScaleOfFp16) {
  const UpdatedInBackward expected =
      TrainInFp16({.in_backward = false, .optimizer = OffloadDevice::kCpu}, GetParam());
  const auto skipped = std::count_if(expected.steps.begin(), expected.steps.end(),
                                     [](const StepResult& step) { return step.skipped; });
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 12);
  for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    const UpdatedInBackward ours = TrainInFp16({.optimizer = device}, GetParam());
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
      EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss);
      EXPECT_EQ(ours.steps[i].skipped, expected.steps[i].skipped);
      EXPECT_EQ(ours.steps[i].loss_scale, expected.steps[i].loss_scale);
    }
    for (const auto& [name, value] : expected.parameters) {
      EXPECT_TRUE(value.equal(ours.parameters.at(name))) << name;
    }
  }
}

// The step is not over: some blocks are its, some are not.
TEST(BackwardUpdate, IsNotSavedBetweenItsBackwardPassAndItsStep) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const double clipping : {0.0, 0.05}) {
      TinyRun run = Unclipped(2);
      run.gradient_clipping = clipping;
      const auto engine = MakeUpdatingEngine(run, {}, folder.path().string(), world);
      checkpoint::Stateful* const parts[] = {&engine->state()};
      const auto save = [&](int step) {
        return checkpoint::SaveCheckpoint(
            {.root = folder.path() / ("saved-" + std::to_string(clipping)), .step = step}, parts,
            world);
      };
      RunMicroBatch(*engine, run, 0);
      EXPECT_THAT(save(0).status().message(), HasSubstr("a checkpoint is saved"));
      EXPECT_TRUE(engine->step().ok());
      EXPECT_TRUE(save(1).ok());
    }
  });
}

TEST(BackwardUpdate, HasGradientsOfABlockAtATimeAndNoneInFiles) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {1, 2, 3}) {
      const TinyRun run = Unclipped(stage);
      std::int64_t peaks[2] = {0, 0};
      for (const bool in_backward : {false, true}) {
        device::MemoryLedger ledger;
        const auto engine =
            MakeUpdatingEngine(run, {.in_backward = in_backward, .optimizer = OffloadDevice::kCpu},
                               folder.path().string(), world, &ledger);
        TrainTiny(*engine, run, 2);
        peaks[in_backward] = ledger.Peak(MemoryUse::kGradients, MemoryTier::kHost);
      }
      EXPECT_LT(peaks[1], peaks[0]) << "stage " << stage;
      device::MemoryLedger ledger;
      const auto engine = MakeUpdatingEngine(run, {}, folder.path().string(), world, &ledger);
      TrainTiny(*engine, run, 2);
      EXPECT_EQ(ledger.Peak(MemoryUse::kGradients, MemoryTier::kFile), 0) << "stage " << stage;
    }
  });
}

TEST(BackwardUpdate, ReportsAModelSpoiledByANonFiniteGradient) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run = Unclipped(3);
    const auto engine = MakeUpdatingEngine(run, {}, folder.path().string(), world);
    Bundle bundle = TinyBatch(run, world, 0);
    bundle.extras["poison"] = at::full({}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
    engine->backward(engine->forward(std::move(bundle)));
    const auto result = engine->step();
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr("is not finite"));
    EXPECT_THAT(result.status().message(), HasSubstr("resume from a checkpoint"));
  });
}

TEST(BackwardUpdate, RewindsToACheckpointWithoutSkippingSteps) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run = Unclipped(3);
    const auto skipping = CreateUpdatingEngine(run, {.non_finite = engine::NonFinitePolicy::kSkip},
                                               folder.path().string(), world, nullptr);
    EXPECT_THAT(skipping.status().message(), HasSubstr("cannot be skipped with super_offload"));
    const auto engine = MakeUpdatingEngine(run, {.non_finite = engine::NonFinitePolicy::kRewind},
                                           folder.path().string(), world);
    Bundle bundle = TinyBatch(run, world, 0);
    bundle.extras["poison"] = at::full({}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
    engine->backward(engine->forward(std::move(bundle)));
    EXPECT_TRUE(engine->step().value().rewind);
  });
}

TEST(BackwardUpdate, RefusesCallsBetweenItAndItsStep) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run = Unclipped(2);
    const auto engine = MakeUpdatingEngine(run, {}, folder.path().string(), world);
    RunMicroBatch(*engine, run, 0);
    engine::TensorAccess access(*engine);
    EXPECT_THAT(access.GetFullGrad("layer.0.w").status().message(), HasSubstr("is used"));
    EXPECT_THAT(engine::DeepSpeedApi(*engine).set_lr(0.1).message(), HasSubstr("super_offload"));
    const at::Tensor loss = engine->forward(TinyBatch(run, world, 1));
    EXPECT_THAT([&] { engine->backward(loss); },
                ::testing::ThrowsMessage<c10::Error>(HasSubstr("call step() before")));
  });
}

// Stages would wait for each other: the last one for the weight of the step, the first one for the
// gradient of what it has sent.
TEST(BackwardUpdate, RefusesStagesOfAPipeline) {
  const TinyRun run = Unclipped(1);
  config::DsConfig config = TinyConfig(run);
  config.zero_optimization.offload_optimizer = {.device = OffloadDevice::kCpu,
                                                .super_offload = true};
  config.parallel.pipeline = 2;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto engine =
        Engine::create(MakeTinyModel(run.shape, run.dtype()), config,
                       {.world = &world, .degrees = topology::Degrees{.pipeline = 2}});
    EXPECT_THAT(engine.status().message(), HasSubstr("stages of a pipeline"));
  });
}

TEST(BackwardUpdate, RefusesABackwardPassThroughTwoForwardPasses) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const TinyRun run = Unclipped(2);
    const auto engine = MakeUpdatingEngine(run, {}, folder.path().string(), world);
    const at::Tensor first = engine->forward(TinyBatch(run, world, 0));
    const at::Tensor second = engine->forward(TinyBatch(run, world, 1));
    EXPECT_THAT([&] { engine->backward(first + second); },
                ::testing::ThrowsMessage<c10::Error>(HasSubstr("several forward passes")));
  });
}

}  // namespace
}  // namespace ds::tests
