// Labels that are ignored: a step's loss and gradients are those that PyTorch's cross entropy gives
// of all its samples at once, however they lie in micro-batches and ranks.

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/models/weights/model_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr std::int64_t kSampleTokens = 8;

std::shared_ptr<BlockList> MakeGpt2() {
  const auto config = models::ParseModelConfig(
      R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 2,
          "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})",
      "config.json");
  return models::BuildModel(config.value(), at::kFloat);
}

// Of the first sample no label counts, of the others 6, 8 and 1.
Bundle Samples(std::int64_t first, std::int64_t count) {
  const at::Tensor positions = at::arange(4 * kSampleTokens, at::kLong).view({4, kSampleTokens});
  at::Tensor labels = (positions * 3 + 2).remainder(50);
  labels[0].fill_(models::kIgnoredLabel);
  labels[1].narrow(0, 0, 2).fill_(models::kIgnoredLabel);
  labels[3].narrow(0, 1, 7).fill_(models::kIgnoredLabel);
  return {.batch = {{"tokens", (positions * 7).remainder(50).narrow(0, first, count)},
                    {"labels", labels.narrow(0, first, count)}}};
}

struct Reference {
  double loss = 0.0;
  std::map<std::string, at::Tensor> gradients;
};

Reference RunPyTorch() {
  const auto model = MakeGpt2();
  for (const auto& block : model->blocks()) {
    models::AllocateParameters(*block);
    block->Initialize(EngineOptions{}.seed);
  }
  const Bundle batch = Samples(0, 4);
  const Bundle out = models::RunBlocks(*model, {.batch = {{"tokens", batch.tensor("tokens")}}});
  const at::Tensor loss = at::cross_entropy_loss(out.extras.at("logits").flatten(0, 1),
                                                 batch.tensor("labels").flatten());
  loss.backward();
  Reference reference{.loss = loss.item<double>()};
  for (const auto& block : model->blocks()) {
    for (const auto& item : block->named_parameters()) {
      reference.gradients[block->FullName(item.key())] = item.value().grad();
    }
  }
  return reference;
}

config::DsConfig TwoMicroBatches(int stage) {
  return TinyConfig({.stage = stage, .accumulation = 2, .gradient_clipping = 0.0});
}

TEST(IgnoredLabels, TheStepIsTheMeanOverTheOthers) {
  const Reference reference = RunPyTorch();
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const auto engine =
          Engine::create(MakeGpt2(), TwoMicroBatches(stage), {.world = &world}).value();
      for (int micro = 0; micro < 2; ++micro) {
        engine->backward(engine->forward(Samples(micro * 2 + world.rank(), 1)));
      }
      double squares = 0.0;
      for (const auto& [name, gradient] : reference.gradients) {
        const at::Tensor ours = TensorAccess(*engine).GetFullGrad(name).value();
        EXPECT_TRUE(ours.allclose(gradient, 1e-4, 1e-7)) << name;
        squares += gradient.square().sum().item<double>();
      }
      const StepResult step = engine->step().value();
      EXPECT_NEAR(step.loss, reference.loss, 1e-6);
      EXPECT_NEAR(step.grad_norm, std::sqrt(squares), 1e-5);
    });
  }
}

TEST(IgnoredLabels, AStepWithoutOthersIsOneWithoutGradients) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto engine = Engine::create(MakeGpt2(), TwoMicroBatches(2), {.world = &world}).value();
    for (int micro = 0; micro < 2; ++micro) engine->backward(engine->forward(Samples(0, 1)));
    const StepResult step = engine->step().value();
    EXPECT_EQ(step.loss, 0.0);
    EXPECT_EQ(step.grad_norm, 0.0);
    EXPECT_TRUE(DeepSpeedApi(*engine).was_step_applied());
  });
}

// The forward passes of a step's micro-batches may all come first.
TEST(IgnoredLabels, EveryLossHasItsOwnWeight) {
  const Reference reference = RunPyTorch();
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto engine = Engine::create(MakeGpt2(), TwoMicroBatches(2), {.world = &world}).value();
    const at::Tensor first = engine->forward(Samples(world.rank(), 1));
    const at::Tensor second = engine->forward(Samples(2 + world.rank(), 1));
    engine->backward(first);
    engine->backward(second);
    EXPECT_NEAR(engine->step().value().loss, reference.loss, 1e-6);
  });
}

TEST(IgnoredLabels, AMaskTakesLabelsOut) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    config::DsConfig config = TinyConfig({.stage = 2});
    config.optimizer.lr = 0.0;
    const auto engine = Engine::create(MakeGpt2(), config, {.world = &world}).value();
    const auto loss_of = [&](Bundle batch) {
      engine->backward(engine->forward(std::move(batch)));
      return engine->step().value();
    };
    Bundle masked = Samples(1, 2);
    const at::Tensor mask = masked.tensor("tokens").remainder(3).ne(0);
    Bundle ignored = Samples(1, 2);
    ignored.batch["labels"] =
        ignored.tensor("labels").masked_fill(mask.logical_not(), models::kIgnoredLabel);
    masked.batch["mask"] = mask;
    const StepResult expected = loss_of(ignored), ours = loss_of(masked);
    EXPECT_EQ(ours.loss, expected.loss);
    EXPECT_EQ(ours.grad_norm, expected.grad_norm);
    EXPECT_NE(ours.loss, loss_of(Samples(1, 2)).loss);
  });
}

// Micro-batch `index` of four: 1 to 3 samples of 3 to 8 tokens.
Bundle Uneven(int index) {
  const std::int64_t samples = 1 + index % 3, tokens = 8 - index * 5 % 6;
  const at::Tensor positions = at::arange(samples * tokens, at::kLong).view({samples, tokens});
  at::Tensor labels = (positions * 3 + index).remainder(50);
  labels[0][0] = models::kIgnoredLabel;
  return {.batch = {{"tokens", (positions * 7 + index).remainder(50)}, {"labels", labels}}};
}

TEST(IgnoredLabels, MicroBatchesMayHaveAnyShape) {
  const auto model = MakeGpt2();
  for (const auto& block : model->blocks()) {
    models::AllocateParameters(*block);
    block->Initialize(EngineOptions{}.seed);
  }
  at::Tensor sum = at::full({}, 0.0);
  double count = 0.0;
  for (int i = 0; i < 4; ++i) {
    const Bundle batch = Uneven(i);
    const at::Tensor logits =
        models::RunBlocks(*model, {.batch = {{"tokens", batch.tensor("tokens")}}})
            .extras.at("logits");
    sum = sum + at::cross_entropy_loss(logits.flatten(0, 1), batch.tensor("labels").flatten(), {},
                                       at::Reduction::Sum);
    count += static_cast<double>(models::CountLabels(batch.tensor("labels")));
  }
  (sum / count).backward();
  for (const int stage : {0, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const auto engine =
          Engine::create(MakeGpt2(), TwoMicroBatches(stage), {.world = &world}).value();
      for (int micro = 0; micro < 2; ++micro) {
        engine->backward(engine->forward(Uneven(micro * 2 + world.rank())));
      }
      for (const auto& block : model->blocks()) {
        for (const auto& item : block->named_parameters()) {
          const std::string name = block->FullName(item.key());
          const at::Tensor ours = TensorAccess(*engine).GetFullGrad(name).value();
          EXPECT_TRUE(ours.allclose(item.value().grad(), 1e-4, 1e-7)) << name;
        }
      }
      EXPECT_NEAR(engine->step().value().loss, sum.item<double>() / count, 1e-6);
    });
  }
}

}  // namespace
}  // namespace ds::tests
