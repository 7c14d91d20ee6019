// What the engine says about itself between calls, and the access to single tensors.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/zero/flat_parameters.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Engine> MakeEngineOf(const TinyRun& run, comm::Communicator& world,
                                     const config::DsConfig& config) {
  const at::ScalarType dtype = config.fp16.enabled ? at::kHalf : at::kFloat;
  return Engine::create(MakeTinyModel(run.shape, dtype), config, {.world = &world}).value();
}

TEST(EngineCounters, CountStepsMicroBatchesAndSamples) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 1, .accumulation = 3};
    const auto engine = MakeTinyEngine(run, world);
    EXPECT_FALSE(DeepSpeedApi(*engine).global_grad_norm().has_value());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(DeepSpeedApi(*engine).is_gradient_accumulation_boundary(), i == 2);
      RunMicroBatch(*engine, run, i);
      EXPECT_EQ(DeepSpeedApi(*engine).is_gradient_accumulation_boundary(), i == 2);
      EXPECT_EQ(engine->step().value().boundary, i == 2);
      EXPECT_EQ(DeepSpeedApi(*engine).was_step_applied(), i == 2);
    }
    EXPECT_EQ(engine->finished_steps(), 1);
    EXPECT_EQ(DeepSpeedApi(*engine).skipped_steps(), 0);
    EXPECT_EQ(DeepSpeedApi(*engine).micro_steps(), 3);
    EXPECT_EQ(DeepSpeedApi(*engine).global_samples(), 24);
    EXPECT_GT(DeepSpeedApi(*engine).global_grad_norm().value(), 0.0);
    EXPECT_EQ(DeepSpeedApi(*engine).lr(), 0.05);
    EXPECT_EQ(DeepSpeedApi(*engine).momentum(), 0.9);
    RunMicroBatch(*engine, run, 3);
    EXPECT_FALSE(engine->step().value().boundary);
    EXPECT_FALSE(DeepSpeedApi(*engine).was_step_applied()) << "that was the step before";
    EXPECT_EQ(DeepSpeedApi(*engine).micro_steps(), 4);
  });
}

// The loss after a step in front of which a forward pass has had no backward.
double LossAfterLostForward(int stage, comm::Communicator& world) {
  const TinyRun run{.stage = stage};
  const auto engine = MakeTinyEngine(run, world);
  RunMicroBatch(*engine, run, 0);
  engine->forward(TinyBatch(run, world, 0));
  EXPECT_TRUE(engine->step().value().boundary);
  return engine->forward(TinyBatch(run, world, 0)).item<double>();
}

TEST(LostForward, LeavesNoOldWeights) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const double expected = LossAfterLostForward(2, world);
    EXPECT_DOUBLE_EQ(LossAfterLostForward(3, world), expected);
  });
}

TEST(SetLr, HoldsForOneUpdateOfAScheduleOtherwiseForGood) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 1};
    const auto plain = MakeTinyEngine(run, world);
    EXPECT_TRUE(DeepSpeedApi(*plain).set_lr(0.25).ok());
    EXPECT_EQ(DeepSpeedApi(*plain).lr(), 0.25);
    for (const StepResult& step : TrainTiny(*plain, run, 2)) EXPECT_EQ(step.lr, 0.25);
    const auto copy = MakeTinyEngine(run, world);
    // As a checkpoint gives it back.
    EXPECT_TRUE(copy->state().LoadState(nlohmann::json::parse(plain->state().State().dump())).ok());
    EXPECT_EQ(DeepSpeedApi(*copy).lr(), 0.25);

    config::DsConfig config = TinyConfig(run);
    config.scheduler = config::WarmupLr{.max_lr = 1.0, .num_steps = 10};
    const auto scheduled = MakeEngineOf(run, world, config);
    TrainTiny(*scheduled, run, 3);
    const double next = DeepSpeedApi(*scheduled).lr();
    EXPECT_TRUE(DeepSpeedApi(*scheduled).set_lr(0.25).ok());
    EXPECT_EQ(TrainTiny(*scheduled, run, 1)[0].lr, 0.25);
    EXPECT_GT(DeepSpeedApi(*scheduled).lr(), next);
    EXPECT_FALSE(DeepSpeedApi(*scheduled).set_lr(-1.0).ok());
  });
}

// Reads and writes of every kind of tensor, the same at every stage.
class Access : public ::testing::TestWithParam<int> {
 protected:
  const std::vector<std::string> names_ = {"table", "layer.0.w", "layer.2.b", "head.gain"};
};

TEST_P(Access, FullTensorsMatchAnUnshardedRun) {
  testing::RunRanks(3, [&](comm::Communicator& world) {
    const TinyRun run{.stage = GetParam()};
    const auto engine = MakeTinyEngine(run, world);
    const auto full = MakeTinyEngine({.stage = 0}, world);
    TrainTiny(*engine, run, 1);
    TrainTiny(*full, run, 1);
    RunMicroBatch(*engine, run, 1);
    RunMicroBatch(*full, run, 1);
    for (const std::string& name : names_) {
      const at::Tensor weight = TensorAccess(*engine).GetFullFp32Param(name).value();
      EXPECT_TRUE(weight.equal(TensorAccess(*full).GetFullFp32Param(name).value())) << name;
      const at::Tensor gradient = TensorAccess(*engine).GetFullGrad(name).value();
      EXPECT_EQ(gradient.sizes(), weight.sizes());
      EXPECT_GT(gradient.abs().max().item<double>(), 0.0) << name;
      EXPECT_TRUE(gradient.equal(TensorAccess(*full).GetFullGrad(name).value())) << name;
      const at::Tensor state = TensorAccess(*engine).GetFullOptimizerState(name, "exp_avg").value();
      EXPECT_TRUE(state.equal(TensorAccess(*full).GetFullOptimizerState(name, "exp_avg").value()));
      // The ranks' parts make up the whole.
      const at::Tensor local = TensorAccess(*engine).GetLocalFp32Param(name).value();
      const at::Tensor count = at::full({1}, static_cast<double>(local.numel()));
      world.AllReduce(count, comm::ReduceOp::kSum);
      const bool sharded = GetParam() > 0;
      EXPECT_EQ(count.item<double>(),
                static_cast<double>(weight.numel() * (sharded ? 1 : world.size())));
    }
    // Looking has changed nothing.
    EXPECT_TRUE(engine->step().ok());
    EXPECT_TRUE(full->step().ok());
    const auto ours = ExportAll(*engine), theirs = ExportAll(*full);
    for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
  });
}

TEST_P(Access, ReadsAndUsesAssignedValues) {
  testing::RunRanks(3, [&](comm::Communicator& world) {
    const TinyRun run{.stage = GetParam()};
    const auto engine = MakeTinyEngine(run, world);
    TensorAccess tensors(*engine);
    const at::Tensor value = at::arange(25, at::kFloat).view({5, 5});
    EXPECT_TRUE(tensors.SetFullFp32Param("layer.0.w", value).ok());
    EXPECT_TRUE(tensors.GetFullFp32Param("layer.0.w").value().equal(value));
    const auto exported = ExportAll(*engine);
    if (world.rank() == 0) {
      EXPECT_TRUE(exported.at("layer.0.w").equal(value)) << "the model's";
    }
    EXPECT_TRUE(tensors.SetFullOptimizerState("layer.0.w", "exp_avg", value).ok());
    EXPECT_TRUE(tensors.GetFullOptimizerState("layer.0.w", "exp_avg").value().equal(value));
    const at::Tensor local = tensors.GetLocalFp32Param("head.gain").value();
    EXPECT_TRUE(tensors.SetLocalFp32Param("head.gain", at::full_like(local, 7.0)).ok());
    EXPECT_TRUE(tensors.GetFullFp32Param("head.gain").value().eq(7.0).all().item<bool>());
    // Gradients are set before the step clips them.
    RunMicroBatch(*engine, run, 0);
    EXPECT_TRUE(tensors.SetFullGrad("layer.1.b", at::full({5}, 3.0)).ok());
    EXPECT_TRUE(tensors.GetFullGrad("layer.1.b").value().eq(3.0).all().item<bool>());
    const at::Tensor part = tensors.GetLocalGrad("layer.1.b").value();
    EXPECT_TRUE(tensors.SetLocalGrad("layer.1.b", part * 2).ok());
    EXPECT_TRUE(tensors.GetFullGrad("layer.1.b").value().eq(6.0).all().item<bool>());
    const auto rising = [](const std::string& name, const at::Tensor& gradient) {
      return gradient + (name == "layer.1.b" ? 1.0 : 2.0);
    };
    const at::Tensor before = tensors.GetFullGrad("layer.2.b").value();
    EXPECT_TRUE(tensors.UpdateFullGrads({"layer.1.b", "layer.2.b"}, rising).ok());
    EXPECT_TRUE(tensors.GetFullGrad("layer.1.b").value().eq(7.0).all().item<bool>());
    EXPECT_TRUE(tensors.GetFullGrad("layer.2.b").value().equal(before + 2.0));
    EXPECT_FALSE(tensors.UpdateFullGrads({"layer.0.scale"}, rising).ok()) << "frozen";
    EXPECT_TRUE(engine->step().ok());
    EXPECT_GT(DeepSpeedApi(*engine).global_grad_norm().value(), 6.0);
  });
}

TEST_P(Access, GradientsOfAScaledLossAreSeenUnscaled) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = GetParam()};
    config::DsConfig scaled = TinyConfig(run);
    scaled.fp16 = {.enabled = true, .loss_scale = 64.0};
    config::DsConfig plain = scaled;
    plain.fp16.loss_scale = 1.0;
    const auto a = MakeEngineOf(run, world, scaled), b = MakeEngineOf(run, world, plain);
    RunMicroBatch(*a, run, 0);
    RunMicroBatch(*b, run, 0);
    const at::Tensor ours = TensorAccess(*a).GetFullGrad("layer.0.w").value();
    const at::Tensor theirs = TensorAccess(*b).GetFullGrad("layer.0.w").value();
    EXPECT_TRUE(ours.allclose(theirs, 1e-2, 1e-4));
    EXPECT_TRUE(TensorAccess(*a).SetFullGrad("layer.0.w", at::ones({5, 5})).ok());
    EXPECT_TRUE(TensorAccess(*a).GetFullGrad("layer.0.w").value().eq(1.0).all().item<bool>());
  });
}

TEST_P(Access, NamesMissingTensors) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = GetParam(), .accumulation = 2};
    const auto engine = MakeTinyEngine(run, world);
    TensorAccess tensors(*engine);
    EXPECT_THAT(tensors.GetFullFp32Param("layer.9.w").status().message(),
                HasSubstr("no parameter layer.9.w"));
    EXPECT_THAT(tensors.GetFullOptimizerState("table", "momentum").status().message(),
                HasSubstr("no state \"momentum\" of table"));
    const at::Tensor table = tensors.GetFullFp32Param("table").value();
    EXPECT_THAT(tensors.SetFullOptimizerState("table", "momentum", table).message(),
                HasSubstr("no state \"momentum\" of table"));
    EXPECT_THAT(tensors.SetLocalOptimizerState("table", "momentum", at::empty({0})).message(),
                HasSubstr("no state \"momentum\" of table"));
    RunMicroBatch(*engine, run, 0);
    EXPECT_THAT(tensors.GetFullGrad("table").status().message(),
                HasSubstr("1 micro-batches have been through backward"));
    EXPECT_THAT(tensors.SetFullFp32Param("table", at::zeros({3})).message(),
                HasSubstr("another shape"));
    EXPECT_THAT(tensors.SetFullFp32Param("layer.0.scale", at::zeros({5})).message(),
                HasSubstr("frozen"));
    EXPECT_THAT(tensors.GetFullGrad("layer.0.scale").status().message(), HasSubstr("frozen"));
    EXPECT_EQ(tensors.GetFullFp32Param("layer.0.scale").value().numel(), 5);
    EXPECT_FALSE(tensors.SetLocalFp32Param("table", at::zeros({1000})).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, Access, ::testing::Values(0, 1, 2, 3));

// On the CPU both memories are the host's; what is away has no bytes all the same.
class OffloadStates : public ::testing::TestWithParam<std::tuple<int, Precision>> {};

TEST_P(OffloadStates, WaitOnTheHostBetweenSteps) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = std::get<0>(GetParam()), .precision = std::get<1>(GetParam())};
    const auto never = MakeTinyEngine(run, world);
    TrainTiny(*never, run, 3);
    const auto model = MakeTinyModel(run.shape, run.dtype());
    const auto engine = Engine::create(model, TinyConfig(run), {.world = &world}).value();
    const at::Tensor weight = model->block(1).parameters()[0];
    TrainTiny(*engine, run, 1);
    const std::int64_t bytes = engine->ledger().ModelStateBytes();
    EXPECT_TRUE(DeepSpeedApi(*engine).offload_states().ok());
    EXPECT_FALSE(zero::HasValues(weight));
    EXPECT_THROW(weight.sum(), c10::Error) << "not a null pointer";
    EXPECT_EQ(engine->ledger().ModelStateBytes(), bytes) << "they are somewhere";
    EXPECT_TRUE(DeepSpeedApi(*engine).reload_states().ok());
    EXPECT_EQ(zero::HasValues(weight), run.stage != 3);
    TrainTiny(*engine, run, 1);
    EXPECT_TRUE(DeepSpeedApi(*engine).offload_states({zero::StateKind::kOptimStates}).ok());
    EXPECT_EQ(zero::HasValues(weight), run.stage != 3) << "the parameters stay";
    EXPECT_TRUE(DeepSpeedApi(*engine).offload_states({zero::StateKind::kLpParams}).ok());
    EXPECT_TRUE(DeepSpeedApi(*engine).empty_partition_cache().ok());
    TrainTiny(*engine, run, 1);  // comes back by itself
    EXPECT_TRUE(DeepSpeedApi(*engine).offload_states().ok());
    const at::Tensor state =
        TensorAccess(*engine).GetFullOptimizerState("table", "exp_avg").value();
    EXPECT_TRUE(
        state.equal(TensorAccess(*never).GetFullOptimizerState("table", "exp_avg").value()));
    EXPECT_TRUE(DeepSpeedApi(*engine).offload_states().ok());
    const auto ours = ExportAll(*engine), theirs = ExportAll(*never);
    for (const auto& [name, value] : ours) EXPECT_TRUE(value.equal(theirs.at(name))) << name;
    RunMicroBatch(*never, run, 0);
    const at::Tensor loss = engine->forward(TinyBatch(run, world, 0));
    EXPECT_TRUE(DeepSpeedApi(*engine).offload_states().ok());
    engine->backward(loss);  // they come back by themselves
    EXPECT_TRUE(TensorAccess(*engine).GetFullGrad("table").value().equal(
        TensorAccess(*never).GetFullGrad("table").value()));
    EXPECT_THAT(DeepSpeedApi(*engine).offload_states().message(), HasSubstr("between steps only"));
    EXPECT_FALSE(DeepSpeedApi(*engine).empty_partition_cache().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, OffloadStates,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16)));

// A model of one's own with buffers.
class WithBuffers : public Block {
 public:
  WithBuffers() : Block("block") {
    w_ = register_parameter("w", at::ones({4}));
    table = register_buffer("table", at::full({4}, 1.0 + 1.0 / 1024));
    counts = register_buffer("counts", at::ones({4}, at::kLong));
  }
  Bundle forward(Bundle bundle) override {
    bundle.loss = (w_ * table).sum();
    return bundle;
  }

  at::Tensor table, counts;

 private:
  at::Tensor w_;
};

TEST(Buffers, AreCastWhereTheConfigSaysOnly) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    for (const bool cast : {false, true}) {
      auto model = std::make_shared<BlockList>();
      const auto block = std::make_shared<WithBuffers>();
      model->Add(block);
      config::DsConfig config = TinyConfig({});
      if (cast) config.buffer_dtype = config::DataType::kBf16;
      const auto engine = Engine::create(model, config, {.world = &world}).value();
      EXPECT_EQ(block->table.scalar_type(), cast ? at::kBFloat16 : at::kFloat);
      EXPECT_EQ(block->counts.scalar_type(), at::kLong);
      const double expected = cast ? 4.0 : 4.0 * (1.0 + 1.0 / 1024);
      EXPECT_EQ(engine->forward({.batch = {{"input", at::zeros({1})}}}).item<double>(), expected);
    }
  });
}

// A model of one's own with a parameter of no elements.
class WithEmpty : public Block {
 public:
  WithEmpty() : Block("block") {
    w_ = register_parameter("w", at::ones({4}));
    empty_ = register_parameter("empty", at::empty({0, 3}));
  }
  Bundle forward(Bundle bundle) override {
    bundle.loss = (w_ * w_).sum() + empty_.sum();
    return bundle;
  }

 private:
  at::Tensor w_, empty_;
};

TEST(ZeroElementParameters, AreTrainedAroundAtEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      auto model = std::make_shared<BlockList>();
      model->Add(std::make_shared<WithEmpty>());
      const auto engine =
          Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
      const at::Tensor first = engine->forward({.batch = {{"input", at::zeros({1})}}});
      engine->backward(first);
      EXPECT_EQ(TensorAccess(*engine).GetFullGrad("block.empty").value().numel(), 0);
      EXPECT_TRUE(engine->step().value().boundary);
      EXPECT_LT(engine->forward({.batch = {{"input", at::zeros({1})}}}).item<double>(),
                first.item<double>());
      engine->backward(engine->forward({.batch = {{"input", at::zeros({1})}}}));
    });
  }
}

}  // namespace
}  // namespace ds::tests
