// What the engine does with gradients that are not finite and with blocks that cannot be loaded.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/base/isa_probe.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One step in which rank 1's first block produces NaN.
StatusOr<StepResult> PoisonedStep(Engine& engine, const TinyRun& run) {
  const auto next = [&]() -> StatusOr<Bundle> {
    Bundle bundle = TinyBatch(run, engine.world(), engine.finished_steps());
    const double factor = engine.world().rank() == 1 ? kNan : 1.0;
    bundle.extras["poison"] = at::full({}, factor, run.dtype());
    return bundle;
  };
  return engine::TrainStep(engine, next);
}

TEST(NonFiniteGradient, EndsTheRunNamingStepParameterAndRankOnEveryRank) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(3, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      const auto engine = MakeTinyEngine(run, world);
      TrainTiny(*engine, run, 1);
      const auto before = ExportAll(*engine);
      const auto result = PoisonedStep(*engine, run);
      EXPECT_FALSE(result.ok());
      EXPECT_THAT(
          result.status().message(),
          AllOf(HasSubstr("step 2: the gradient of table (NaN at element "),
                HasSubstr(" of the mean over ranks, first on rank 1, micro-step 1) is not finite"),
                HasSubstr("the loss of rank 1 is nan")));
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
    });
  }
}

TEST(NonFiniteGradient, SkipsTheStepInBf16WhichTheScheduleDoesNotCount) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .precision = Precision::kBf16};
      const auto engine = MakeTinyEngine(run, world);
      const auto before = ExportAll(*engine);
      const auto result = PoisonedStep(*engine, run).value();
      EXPECT_TRUE(result.boundary);
      EXPECT_TRUE(result.skipped);
      EXPECT_EQ(result.step, 1);
      EXPECT_EQ(engine->state().State()["applied_steps"], 0);
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
      EXPECT_FALSE(TrainTiny(*engine, run, 1)[0].skipped) << "nothing of it is left";
    });
  }
}

// DeepSpeed would let it into the weights.
TEST(NonFiniteGradient, EndsTheRunInBf16WithoutCheckGradOverflow) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .precision = Precision::kBf16};
      config::DsConfig config = TinyConfig(run);
      config.bf16.check_grad_overflow = false;
      const auto engine =
          Engine::create(MakeTinyModel(run.shape, at::kBFloat16), config, {.world = &world})
              .value();
      const auto before = ExportAll(*engine);
      EXPECT_THAT(PoisonedStep(*engine, run).status().message(),
                  HasSubstr("step 1: the gradient of table (NaN"));
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
    });
  }
}

TEST(NonFiniteGradient, IsNamedWithTheRankAndMicroStepThatBroughtIt) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(3, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 2};
      const auto engine = MakeTinyEngine(run, world);
      std::int64_t micro_batch = 0;
      const auto next = [&]() -> StatusOr<Bundle> {
        Bundle bundle = TinyBatch(run, world, micro_batch);
        const bool bad = world.rank() == 2 && micro_batch == 1;
        bundle.extras["poison"] = at::full({}, bad ? kNan : 1.0, at::kFloat);
        ++micro_batch;
        return bundle;
      };
      EXPECT_THAT(engine::TrainStep(*engine, next).status().message(),
                  HasSubstr(", first on rank 2, micro-step 2) is not finite"));
    });
  }
}

// A large gradient is read by the norm alone, which no longer knows whose it was.
TEST(NonFiniteGradient, IsNamedInTheMeanWhereAMatrixAloneHasIt) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .shape = {.vocabulary = 2000}};
      const auto model = MakeTinyModel(run.shape, at::kFloat);
      const auto engine = Engine::create(model, TinyConfig(run), {.world = &world}).value();
      const bool bad = world.rank() == 1;
      model->block(0).parameters()[0].register_hook(
          [bad](const at::Tensor& gradient) { return bad ? gradient / 0.0 : gradient; });
      const auto result = engine::TrainStep(
          *engine, [&]() -> StatusOr<Bundle> { return TinyBatch(run, world, 0); });
      EXPECT_THAT(result.status().message(), HasSubstr(" of the mean over ranks) is not finite"));
      EXPECT_THAT(result.status().message(), HasSubstr("step 1: the gradient of table ("));
    });
  }
}

TEST(NonFiniteGradient, PoliciesSkipStopOrAskForARewind) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto step = [&](engine::NonFinitePolicy policy, Precision precision) {
      const TinyRun run{.stage = 1, .precision = precision};
      const auto engine = Engine::create(MakeTinyModel(run.shape, run.dtype()), TinyConfig(run),
                                         {.world = &world, .non_finite = policy})
                              .value();
      return PoisonedStep(*engine, run);
    };
    const auto skipped = step(engine::NonFinitePolicy::kSkip, Precision::kFp32).value();
    EXPECT_TRUE(skipped.skipped && !skipped.rewind);
    EXPECT_THAT(skipped.non_finite, HasSubstr("the gradient of table (NaN"));
    EXPECT_EQ(skipped.overflow, "") << "of fp16 alone";
    EXPECT_FALSE(step(engine::NonFinitePolicy::kStop, Precision::kBf16).ok());
    EXPECT_TRUE(step(engine::NonFinitePolicy::kRewind, Precision::kFp32).value().rewind);
  });
}

StatusOr<StepResult> PlainStep(Engine& engine, const TinyRun& run) {
  std::int64_t micro_batch = engine.finished_steps() * run.accumulation;
  return engine::TrainStep(
      engine, [&]() -> StatusOr<Bundle> { return TinyBatch(run, engine.world(), micro_batch++); });
}

TEST(UnusedParameters, AreNamedOnEveryRankWhenTheyAreNotIgnored) {
  for (const int stage : {1, 2}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 2};
      config::DsConfig config = TinyConfig(run);
      config.zero_optimization.ignore_unused_parameters = false;
      const auto engine =
          Engine::create(MakeTinyModel(run.shape, at::kFloat), config, {.world = &world}).value();
      const auto before = ExportAll(*engine);
      const auto result = PlainStep(*engine, run);
      EXPECT_FALSE(result.ok());
      // Of the table, three layers' w, b and unused, and the gain. Frozen ones do not count.
      EXPECT_THAT(result.status().message(),
                  AllOf(HasSubstr("step 1: 3 of 11 trained parameters without a part in the loss: "
                                  "layer.0.unused, layer.1.unused, layer.2.unused; use them"),
                        HasSubstr("zero_optimization.ignore_unused_parameters at true")));
      EXPECT_FALSE(DeepSpeedApi(*engine).was_step_applied());
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
    });
  }
}

TEST(UnusedParameters, AreThoseThatNoRankUsesInAnyMicroBatch) {
  for (const int stage : {1, 2}) {
    testing::RunRanks(3, [&](comm::Communicator& world) {
      // The layers are trained, or not, as a rank's batch says: rank r uses layer r alone, and that
      // in its first micro-batch only.
      const TinyRun run{.stage = stage, .accumulation = 2};
      const auto model = MakeTinyModel(run.shape, at::kFloat);
      for (int i = 1; i <= 3; ++i) {
        model->block(i).named_parameters()["unused"].set_requires_grad(false);
      }
      config::DsConfig config = TinyConfig(run);
      config.zero_optimization.ignore_unused_parameters = false;
      const auto engine = Engine::create(model, config, {.world = &world}).value();
      const auto step = [&](bool layer_2_too) {
        for (int micro = 0; micro < 2; ++micro) {
          Bundle bundle = TinyBatch(run, world, micro);
          bundle.extras["only_layer"] = at::full({}, micro == 0 ? world.rank() : 0, at::kLong);
          if (!layer_2_too && world.rank() == 2) bundle.extras["only_layer"].fill_(1);
          engine->backward(engine->forward(std::move(bundle)));
        }
        return engine->step();
      };
      EXPECT_TRUE(step(true).value().boundary);
      EXPECT_THAT(step(false).status().message(),
                  HasSubstr("step 2: 2 of 8 trained parameters without a part in the loss: "
                            "layer.2.w, layer.2.b; "));
    });
  }
}

TEST(LossScaling, FindsItsScaleAndItsStateIsSaved) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      config::DsConfig config = TinyConfig(run);
      config.fp16 = {.enabled = true, .initial_scale_power = 24, .hysteresis = 1};
      const auto make = [&] {
        return Engine::create(MakeTinyModel(run.shape, at::kHalf), config, {.world = &world})
            .value();
      };
      const auto engine = make();
      const auto first = TrainTiny(*engine, run, 1)[0];
      EXPECT_TRUE(first.skipped);
      EXPECT_EQ(first.loss_scale, 16777216.0);
      EXPECT_THAT(first.non_finite, HasSubstr("at element"));
      EXPECT_EQ(first.overflow, "the loss scale changes from 16777216 to 8388608");
      EXPECT_EQ(DeepSpeedApi(*engine).skipped_steps(), 1);
      EXPECT_FALSE(DeepSpeedApi(*engine).was_step_applied());
      int skipped = 1;
      while (TrainTiny(*engine, run, 1)[0].skipped) ++skipped;
      EXPECT_EQ(DeepSpeedApi(*engine).loss_scale(), 16777216.0 / static_cast<double>(1 << skipped));
      EXPECT_EQ(engine->state().State()["applied_steps"], 1);
      const auto other = make();
      EXPECT_TRUE(
          other->state().LoadState(nlohmann::json::parse(engine->state().State().dump())).ok());
      EXPECT_EQ(DeepSpeedApi(*other).loss_scale(), DeepSpeedApi(*engine).loss_scale());
    });
  }
}

TEST(LossScaling, AnOverflowAtTheMinimumEndsTheRunFromStage1On) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      config::DsConfig config = TinyConfig(run);
      config.fp16 = {
          .enabled = true, .initial_scale_power = 3, .hysteresis = 1, .min_loss_scale = 4.0};
      const auto engine =
          Engine::create(MakeTinyModel(run.shape, at::kHalf), config, {.world = &world}).value();
      EXPECT_TRUE(PoisonedStep(*engine, run).value().skipped);
      EXPECT_EQ(DeepSpeedApi(*engine).loss_scale(), 4.0);
      const auto before = ExportAll(*engine);
      const auto at_minimum = PoisonedStep(*engine, run);
      EXPECT_EQ(at_minimum.ok(), stage == 0);
      if (stage > 0) {
        EXPECT_THAT(at_minimum.status().message(),
                    AllOf(HasSubstr("step 2: the gradient of table (NaN"),
                          HasSubstr("the fp16 loss scale is at its minimum, 4, ")));
      }
      EXPECT_EQ(DeepSpeedApi(*engine).loss_scale(), 4.0);
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
    });
  }
}

TEST(LossScaling, OfAutocastInFp16SkipsAndIsSaved) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      config::DsConfig config = TinyConfig(run);
      config.torch_autocast = {.enabled = true, .dtype = config::DataType::kFp16};
      const auto make = [&] {
        return Engine::create(MakeTinyModel(run.shape, at::kFloat), config, {.world = &world})
            .value();
      };
      const auto engine = make();
      const auto before = ExportAll(*engine);
      const auto poisoned = PoisonedStep(*engine, run).value();
      EXPECT_TRUE(poisoned.skipped) << "one rank's overflow is everybody's";
      EXPECT_EQ(poisoned.loss_scale, 65536.0);
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
      const auto next = TrainTiny(*engine, run, 1)[0];
      EXPECT_FALSE(next.skipped);
      EXPECT_EQ(next.loss_scale, 32768.0);
      const auto other = make();
      EXPECT_TRUE(
          other->state().LoadState(nlohmann::json::parse(engine->state().State().dump())).ok());
      EXPECT_EQ(DeepSpeedApi(*other).loss_scale(), 32768.0);
      EXPECT_EQ(DeepSpeedApi(*other).skipped_steps(), 1);
    });
  }
}

TEST(EngineCreate, FailsOnEveryRankWhenOneCannotReadItsValues) {
  // So wide that every rank has a range of every matrix.
  testing::RunRanks(3, [&](comm::Communicator& world) {
    const auto read = [&](const std::string& name, std::int64_t, const at::Tensor& values) {
      values.zero_();
      const bool fails = world.rank() == 2 && name.starts_with("layer.0");
      return fails ? NotFoundError("no such tensor") : OkStatus();
    };
    const auto engine =
        Engine::create(MakeTinyModel({.width = 20}, at::kFloat), TinyConfig({.stage = 3}),
                       {.world = &world, .read_values = read});
    EXPECT_FALSE(engine.ok());
    EXPECT_THAT(engine.status().message(), HasSubstr("block 1 (layer.0): rank 2: no such tensor"));
  });
}

TEST(EngineCreate, RefusesAParameterThatIsInTwoBlocks) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto tiny = MakeTinyModel({}, at::kFloat);
    model->Add(tiny->blocks()[0]);
    model->Add(tiny->blocks()[0]);
    const auto engine = Engine::create(model, TinyConfig({}), {.world = &world});
    EXPECT_FALSE(engine.ok());
    EXPECT_THAT(engine.status().message(), HasSubstr("parameter table belongs to two blocks"));
  });
}

TEST(EngineCreate, RefusesDegreesThatTheConfigContradicts) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto engine =
        Engine::create(MakeTinyModel({}, at::kFloat), TinyConfig({.stage = 2}),
                       {.world = &world, .degrees = topology::Degrees{.shard = 2, .expert = 2}});
    EXPECT_THAT(engine.status().message(),
                HasSubstr("expert_parallel.autoep_size is 1, and the mesh's expert 2"));
  });
}

TEST(EngineCreate, RefusesAnotherDeviceThanItsGroups) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    comm::Communicator of_gpu_1(world.backend(), c10::Device(c10::kCUDA, 1));
    const auto create = [&](c10::Device device) {
      const auto engine = Engine::create(MakeTinyModel({}, at::kFloat), TinyConfig({}),
                                         {.world = &of_gpu_1, .device = device});
      EXPECT_FALSE(engine.ok());
      return std::string(engine.status().message());
    };
    EXPECT_THAT(create(c10::Device(c10::kCUDA, 0)),
                HasSubstr("the engine is to be on cuda:0, and its ranks talk through cuda:1"));
    EXPECT_THAT(create(c10::kCPU), HasSubstr("its ranks talk through cuda:1"));
    // The group says which GPU: what is left to refuse is where the model lies.
    EXPECT_THAT(create(c10::kCUDA), HasSubstr("parameter table is on cpu, the engine on cuda:1"));
  });
}

TEST(EngineCreate, KeepsRankZerosValuesOfParametersThatHaveSome) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const auto model = MakeTinyModel({}, at::kFloat);
      for (const auto& block : model->blocks()) {
        models::AllocateParameters(*block);
        block->Initialize(static_cast<std::uint64_t>(world.rank()) + 7);
      }
      const at::Tensor mine = model->block(1).named_parameters()["w"].detach().clone();
      const auto engine =
          Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
      const auto exported = ExportAll(*engine);
      if (world.rank() == 0) {
        EXPECT_TRUE(exported.at("layer.0.w").equal(mine));
      }
    });
  }
}

}  // namespace
}  // namespace ds::tests
