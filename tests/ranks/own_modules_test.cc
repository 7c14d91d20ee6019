// What users' own modules bring: buffers, storage that parameters share, losses in half precision,
// hooks of their own.

#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/view_as_complex.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/batchnorm.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

// Inputs [B, 4] and targets [B, 4] that differ from rank to rank and step to step.
Bundle RegressionBatch(int rank, int step, at::ScalarType dtype) {
  const at::Tensor values = at::arange(32, at::kFloat).add(rank * 5 + step * 11).remainder(7) - 3;
  return {.batch = {{"input", values.view({8, 4}).to(dtype)},
                    {"labels", values.remainder(3).view({8, 4}).to(dtype)}}};
}

class NormBlock : public Block {
 public:
  NormBlock() : Block("net") {
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    weight = register_parameter("weight", at::full({4, 4}, 0.25));
  }
  Bundle forward(Bundle bundle) override {
    const at::Tensor out = at::linear(norm->forward(bundle.tensor("input")), weight);
    bundle.loss = at::mse_loss(out, bundle.tensor("labels"));
    return bundle;
  }

  torch::nn::BatchNorm1d norm = nullptr;
  at::Tensor weight;
};

struct NormRun {
  explicit NormRun(comm::Communicator& world, double first_mean = 0.0, int stage = 2)
      : block(std::make_shared<NormBlock>()) {
    block->norm->running_mean.fill_(first_mean);
    auto model = std::make_shared<BlockList>();
    model->Add(block);
    engine = Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
  }
  void Train(int step) {
    engine->backward(engine->forward(RegressionBatch(engine->world().rank(), step, at::kFloat)));
    EXPECT_TRUE(engine->step().ok());
  }

  std::shared_ptr<NormBlock> block;
  std::unique_ptr<Engine> engine;
};

TEST(Buffers, AreRankZerosAtTheStart) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const NormRun run(world, world.rank() + 7.0);
    EXPECT_TRUE(run.block->norm->running_mean.equal(at::full({4}, 7.0)));
  });
}

TEST(Buffers, AreSavedLoadedAndExported) {
  for (const int stage : {0, 3}) {
    const testing::TemporaryFolder folder;
    at::Tensor mean, variance;  // rank 0's
    testing::RunRanks(2, [&](comm::Communicator& world) {
      NormRun run(world, 0.0, stage);
      run.Train(0);
      run.Train(1);
      checkpoint::Stateful* const parts[] = {&run.engine->state()};
      const at::Tensor own = run.block->norm->running_mean.clone();
      EXPECT_TRUE(
          checkpoint::SaveCheckpoint({.root = folder.path(), .step = 2}, parts, world).ok());
      const auto exported = ExportAll(*run.engine);
      if (world.rank() != 0) return;
      mean = run.block->norm->running_mean.clone();
      variance = run.block->norm->running_var.clone();
      EXPECT_TRUE(mean.equal(own)) << "saving does not change rank 0's";
      EXPECT_TRUE(exported.at("net.norm.running_mean").equal(mean));
      EXPECT_EQ(exported.at("net.norm.num_batches_tracked").item<int>(), 2);
    });
    for (const int size : {1, 3}) {
      testing::RunRanks(size, [&](comm::Communicator& world) {
        const NormRun run(world, 0.0, stage);
        checkpoint::Stateful* const parts[] = {&run.engine->state()};
        const Status loaded = checkpoint::LoadCheckpoint(folder.path() / "step-2", parts, world);
        EXPECT_TRUE(loaded.ok()) << loaded.message();
        EXPECT_TRUE(run.block->norm->running_mean.equal(mean));
        EXPECT_TRUE(run.block->norm->running_var.equal(variance));
        EXPECT_EQ(run.block->norm->num_batches_tracked.item<int>(), 2);
      });
    }
  }
}

// Buffers of dtypes that collectives and checkpoints do not have.
class RotaryBlock : public NormBlock {
 public:
  RotaryBlock() {
    angles =
        register_buffer("turns", at::view_as_complex(at::arange(16, at::kFloat).view({4, 2, 2})));
    scales = register_buffer("scales", at::arange(6, at::kFloat).to(at::kFloat8_e4m3fn));
  }
  at::Tensor angles, scales;
};

TEST(Buffers, OfEveryDtypeAreAlikeSavedAndLoaded) {
  const testing::TemporaryFolder folder;
  const auto make = [](comm::Communicator& world, const std::shared_ptr<RotaryBlock>& block) {
    auto model = std::make_shared<BlockList>();
    model->Add(block);
    return Engine::create(model, TinyConfig({.stage = 1}), {.world = &world});
  };
  const auto expect_first = [](const RotaryBlock& block) {
    const RotaryBlock first;
    EXPECT_TRUE(block.angles.equal(first.angles));
    EXPECT_TRUE(block.scales.to(at::kFloat).equal(first.scales.to(at::kFloat)));
  };
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto block = std::make_shared<RotaryBlock>();
    if (world.rank() == 1) {
      block->angles.zero_();
      block->scales.view(at::kByte).zero_();
    }
    const auto engine = make(world, block);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    expect_first(*block);
    checkpoint::Stateful* const parts[] = {&(*engine)->state()};
    const auto saved = checkpoint::SaveCheckpoint({.root = folder.path(), .step = 1}, parts, world);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
  });
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const auto block = std::make_shared<RotaryBlock>();
    const auto engine = make(world, block).value();
    block->angles.zero_();
    block->scales.view(at::kByte).zero_();
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const Status loaded = checkpoint::LoadCheckpoint(folder.path() / "step-1", parts, world);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    expect_first(*block);
  });
}

class TwoMatrices : public Block {
 public:
  TwoMatrices() : Block("pair") {
    first = register_parameter("first", at::full({4, 4}, 0.5));
    second = register_parameter("second", at::full({4, 4}, 0.5));
  }
  Bundle forward(Bundle bundle) override {
    bundle.loss = at::mse_loss(at::linear(at::linear(bundle.tensor("input"), first), second),
                               bundle.tensor("labels"));
    return bundle;
  }

  at::Tensor first, second;
};

TEST(SharedStorage, IsRefusedNamingBothParameters) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    block->second.set_data(block->first);  // tied, the usual way
    model->Add(block);
    const auto engine = Engine::create(model, TinyConfig({}), {.world = &world});
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(engine.status().message(),
                HasSubstr("parameters pair.first and pair.second share memory"));
  });
}

// In fp16 throughout, its loss too.
class HalfBlock : public Block {
 public:
  HalfBlock() : Block("half") {
    weight = register_parameter("weight", at::full({4, 4}, 0.25, at::kHalf));
  }
  Bundle forward(Bundle bundle) override {
    bundle.loss = at::mse_loss(at::linear(bundle.tensor("input"), weight), bundle.tensor("labels"));
    return bundle;
  }

  at::Tensor weight;
};

std::map<std::string, at::Tensor> TrainHalf(comm::Communicator& world, double loss_scale) {
  auto model = std::make_shared<BlockList>();
  model->Add(std::make_shared<HalfBlock>());
  config::DsConfig config = TinyConfig({.stage = 1});
  config.fp16 = {.enabled = true, .loss_scale = loss_scale};
  const auto engine = Engine::create(model, config, {.world = &world}).value();
  Bundle batch = RegressionBatch(world.rank(), 0, at::kHalf);
  batch.batch["input"] = batch.tensor("input") * 0.001;  // gradients that are far from fp16's end
  engine->backward(engine->forward(std::move(batch)));
  const StepResult result = engine->step().value();
  EXPECT_FALSE(result.skipped) << "loss scale " << loss_scale << ": " << result.non_finite;
  return ExportAll(*engine);
}

TEST(HalfPrecisionLoss, TakesAScaleThatFp16CannotHold) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto small = TrainHalf(world, 1024.0);
    const auto large = TrainHalf(world, 131072.0);
    for (const auto& [name, value] : small) EXPECT_TRUE(value.equal(large.at(name))) << name;
  });
}

class CountingHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit CountingHook(int& calls) : calls_(calls) {}
  void operator()(const torch::autograd::Variable& variable) override {
    EXPECT_TRUE(variable.grad().defined());
    ++calls_;
  }

 private:
  int& calls_;
};

TEST(GradientHooks, OfTheUserRunNextToTheEnginesAndStayWhenItEnds) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    int calls = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(block->first,
                                                   std::make_unique<CountingHook>(calls));
    {
      const auto engine = Engine::create(model, TinyConfig({}), {.world = &world}).value();
      engine->backward(engine->forward(RegressionBatch(0, 0, at::kFloat)));
      EXPECT_EQ(calls, 1);
      EXPECT_TRUE(TensorAccess(*engine).GetFullGrad("pair.first").value().ne(0).any().item<bool>());
    }
    EXPECT_NE(torch::autograd::impl::post_acc_grad_hooks(block->first), nullptr);
    EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(block->second), nullptr);
  });
}

TEST(GradientHooks, SetAfterTheEngineLeaveItsGradients) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    const auto engine = Engine::create(model, TinyConfig({}), {.world = &world}).value();
    int calls = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(block->first,
                                                   std::make_unique<CountingHook>(calls));
    const at::Tensor before = block->first.detach().clone();
    engine->backward(engine->forward(RegressionBatch(0, 0, at::kFloat)));
    EXPECT_TRUE(engine->step().ok());
    EXPECT_EQ(calls, 1);
    // AdamW moves each element with a gradient by about the learning rate, others by decay alone.
    const at::Tensor moved = (block->first - before).abs();
    EXPECT_GT(moved.max().item<double>(), 1e-4);
  });
}

TEST(GradientHooks, RefuseABackwardPassThatTheEngineHasNotStarted) {
  for (const int stage : {0, 2, 3}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      auto model = std::make_shared<BlockList>();
      model->Add(std::make_shared<TwoMatrices>());
      const auto engine =
          Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
      const at::Tensor loss = engine->forward(RegressionBatch(0, 0, at::kFloat));
      try {
        loss.backward();
        ADD_FAILURE() << "no error";
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what_without_backtrace(),
                    ::testing::MatchesRegex("a gradient of pair\\.(first|second) comes from a "
                                            "backward pass that the engine has not started.*"));
      }
    });
  }
}

TEST(GradientHooks, NameAGradientThatTheStepWouldNotUse) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    const auto engine = Engine::create(model, TinyConfig({}), {.world = &world}).value();
    engine->backward(engine->forward(RegressionBatch(0, 0, at::kFloat)));
    block->second.mutable_grad() = at::ones_like(block->second);
    const auto step = engine->step();
    ASSERT_FALSE(step.ok());
    EXPECT_EQ(step.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(step.status().message(),
                HasSubstr("parameter pair.second has a gradient in .grad"));
    block->second.mutable_grad().reset();
    EXPECT_TRUE(engine->step().ok());
  });
}

std::string MessageOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(GradientHooks, RefuseABackwardPassOverAGradientThatIsThere) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    const auto engine = Engine::create(model, TinyConfig({}), {.world = &world}).value();
    const at::Tensor loss = engine->forward(RegressionBatch(0, 0, at::kFloat));
    block->second.mutable_grad() = at::ones_like(block->second);
    EXPECT_THAT(MessageOf([&] { engine->backward(loss); }),
                HasSubstr("parameter pair.second has a gradient in .grad"));
    block->second.mutable_grad().reset();
    engine->backward(loss);
    EXPECT_TRUE(engine->step().ok());
  });
}

TEST(GradientHooks, NameAParameterThatWasUnfrozenTooLate) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      auto model = std::make_shared<BlockList>();
      const auto block = std::make_shared<TwoMatrices>();
      block->second.set_requires_grad(false);
      model->Add(block);
      const auto engine =
          Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
      block->second.set_requires_grad(true);
      engine->backward(engine->forward(RegressionBatch(0, 0, at::kFloat)));
      EXPECT_THAT(std::string(engine->step().status().message()),
                  HasSubstr("parameter pair.second was frozen when the engine was created"));
    });
  }
}

TEST(BackwardPass, ThatHasThrownEndsItsStep) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      auto model = std::make_shared<BlockList>();
      const auto block = std::make_shared<TwoMatrices>();
      model->Add(block);
      const auto engine =
          Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
      const auto hook = block->first.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("by the user"); });
      const at::Tensor loss = engine->forward(RegressionBatch(0, 0, at::kFloat));
      EXPECT_ANY_THROW(engine->backward(loss));
      block->first.remove_hook(hook);
      EXPECT_THAT(
          MessageOf([&] { engine->backward(engine->forward(RegressionBatch(0, 1, at::kFloat))); }),
          HasSubstr("a backward pass of this step has thrown"));
      EXPECT_THAT(std::string(engine->step().status().message()),
                  HasSubstr("a backward pass of this step has thrown"));
    });
  }
}

TEST(BackwardPass, ThroughAnEngineThatHasEndedThrows) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      auto model = std::make_shared<BlockList>();
      model->Add(std::make_shared<TwoMatrices>());
      auto engine = Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
      const at::Tensor loss = engine->forward(RegressionBatch(0, 0, at::kFloat));
      engine.reset();
      EXPECT_THAT(MessageOf([&] { loss.backward(); }),
                  HasSubstr("a model whose engine has been destroyed"));
    });
  }
}

TEST(ReleasedParameters, AreNotTrainedFromNewValuesByALaterEngine) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    model->Add(std::make_shared<TwoMatrices>());
    const config::DsConfig config = TinyConfig({.stage = 3});
    Engine::create(model, config, {.world = &world}).value().reset();
    const auto second = Engine::create(model, config, {.world = &world});
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.status().message(), HasSubstr("the values of parameter pair.first went"));
    const auto read = [](const std::string&, std::int64_t, const at::Tensor& values) {
      values.fill_(0.5);
      return OkStatus();
    };
    EXPECT_TRUE(Engine::create(model, config, {.world = &world, .read_values = read}).ok());
  });
}

TEST(ReleasedParameters, AreNamedByEveryWayOfReading) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    config::DsConfig config = TinyConfig({.stage = 3});
    config.zero_optimization.offload_param.device = config::OffloadDevice::kCpu;
    const auto engine = Engine::create(model, config, {.world = &world}).value();
    const at::Tensor& w = block->first;
    const at::Tensor zero = at::zeros({1}, at::kLong);
    const std::vector<std::pair<std::string, std::function<void()>>> ways{
        {"item", [&] { w[0][0].item(); }},
        {"index_select", [&] { w.index_select(0, zero); }},
        {"embedding", [&] { at::embedding(w, zero); }},
        {"linear",
         [&] {
           at::linear(at::ones({1, w.size(1)}), w);
         }},
        {"transpose", [&] { w.t().contiguous(); }},
        {"narrow", [&] { w.narrow(0, 1, 1).clone(); }},
    };
    for (const auto& [name, way] : ways) {
      EXPECT_THAT(MessageOf(way), HasSubstr("parameter pair.first is sharded")) << name;
    }
  });
}

TEST(ReleasedParameters, AreNamedByAnErrorWhenTheyAreRead) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    const auto read = [&] {
      try {
        block->first.sum();
        return std::string("was read");
      } catch (const c10::Error& error) {
        return std::string(error.what_without_backtrace());
      }
    };
    {
      const auto engine =
          Engine::create(model, TinyConfig({.stage = 3}), {.world = &world}).value();
      EXPECT_THAT(read(), HasSubstr("parameter pair.first is sharded"));
      engine->backward(engine->forward(RegressionBatch(world.rank(), 0, at::kFloat)));
      EXPECT_TRUE(engine->step().ok());
      EXPECT_THAT(read(), HasSubstr("parameter pair.first is sharded"));
      const Status gathered = WithGatheredParameters(*engine, {"pair.first"}, std::nullopt, [&] {
        EXPECT_EQ(read(), "was read");
        return OkStatus();
      });
      EXPECT_TRUE(gathered.ok()) << gathered.message();
    }
    EXPECT_THAT(read(), HasSubstr("parameter pair.first has no values any more"));
  });
}

TEST(SecondEngine, OverAModelIsRefusedWhileTheFirstLives) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    const auto block = std::make_shared<TwoMatrices>();
    model->Add(block);
    const auto create = [&] { return Engine::create(model, TinyConfig({}), {.world = &world}); };
    const auto train = [&](Engine& engine) {
      engine.backward(engine.forward(RegressionBatch(world.rank(), 0, at::kFloat)));
      EXPECT_TRUE(engine.step().ok());
    };
    auto first = create().value();
    const auto second = create();
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(second.status().message(),
                HasSubstr("parameter pair.first is trained by another engine"));
    at::Tensor before = block->first.detach().clone();
    train(*first);
    EXPECT_FALSE(block->first.equal(before)) << "the first goes on";
    first.reset();
    before = block->first.detach().clone();
    const auto third = create().value();
    train(*third);
    EXPECT_FALSE(block->first.equal(before));
  });
}

}  // namespace
}  // namespace ds::tests
