// Training with recomputed activations: the numbers of training without, bit for bit.

#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/base/clock.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using Kind = config::RecomputeChoice::Kind;

struct RecomputeCase {
  std::string model;  // its config.json
  TinyRun run;
  config::RecomputeChoice recompute;
};

constexpr char kRecomputedGpt2[] =
    R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 3,
        "n_head": 2, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})";
constexpr char kLlama[] =
    R"({"model_type": "llama", "vocab_size": 50, "max_position_embeddings": 8, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2,
        "num_key_value_heads": 1})";

struct RecomputedRun {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

RecomputedRun Train(const RecomputeCase& c) {
  RecomputedRun outcome;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    auto model =
        models::BuildModel(models::ParseModelConfig(c.model, "config.json").value(), c.run.dtype());
    model->train(true);
    const auto engine =
        Engine::create(model, TinyConfig(c.run), {.world = &world, .recompute = c.recompute})
            .value();
    std::vector<StepResult> steps;
    for (int step = 0; step < 3; ++step) {
      for (std::int64_t micro = 0; micro < c.run.accumulation; ++micro) {
        const at::Tensor tokens =
            (at::arange(16, at::kLong).view({2, 8}) * (7 + world.rank()) + step + micro)
                .remainder(50);
        engine->backward(engine->forward(
            {.batch = {{"tokens", tokens}, {"labels", (tokens * 3).remainder(50)}}}));
      }
      steps.push_back(engine->step().value());
    }
    const auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {steps, parameters};
  });
  return outcome;
}

void ExpectSame(const RecomputedRun& ours, const RecomputedRun& expected) {
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss) << i;
    EXPECT_EQ(ours.steps[i].grad_norm, expected.steps[i].grad_norm) << i;
  }
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).equal(value)) << name;
  }
}

TEST(RecomputeInTraining, ChangesNoBitAtAnyStage) {
  for (const char* const model : {kRecomputedGpt2, kLlama}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        const TinyRun run{.stage = stage, .accumulation = 2, .precision = precision};
        const RecomputedRun expected = Train({.model = model, .run = run});
        for (const config::RecomputeChoice& choice :
             {config::RecomputeChoice{.kind = Kind::kBlocks},
              config::RecomputeChoice{.kind = Kind::kBlocks, .every = 2},
              config::RecomputeChoice{.kind = Kind::kAttention}}) {
          SCOPED_TRACE(std::string(model).substr(16, 5) + " stage " + std::to_string(stage) +
                       " kind " + std::to_string(static_cast<int>(choice.kind)));
          ExpectSame(Train({.model = model, .run = run, .recompute = choice}), expected);
        }
      }
    }
  }
}

// A block of a user's own, with a state that its forward pass changes and draws of a generator.
class Normalised : public Block {
 public:
  explicit Normalised(int index) : Block("layer." + std::to_string(index)) {
    weight_ = register_parameter("weight", at::ones({6}));
    mean_ = register_buffer("running_mean", at::zeros({6}));
    variance_ = register_buffer("running_var", at::ones({6}));
  }
  Bundle forward(Bundle bundle) override {
    const at::Tensor& x = bundle.hidden.defined() ? bundle.hidden : bundle.tensor("x");
    const at::Tensor normal = at::batch_norm(x, weight_, {}, mean_, variance_, /*training=*/true,
                                             /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn=*/false);
    bundle.hidden = at::dropout(normal, 0.3, /*train=*/true);
    ++runs;
    return bundle;
  }
  at::Tensor mean() const { return mean_; }
  int runs = 0;

 private:
  at::Tensor weight_, mean_, variance_;
};

class SumOfSquares : public Block {
 public:
  SumOfSquares() : Block("head") { weight_ = register_parameter("weight", at::ones({6})); }
  Bundle forward(Bundle bundle) override {
    bundle.loss = (bundle.hidden * weight_).square().mean();
    return bundle;
  }

 private:
  at::Tensor weight_;
};

// A second passes with every look at it.
class RecomputeClock : public ManualClock {
 public:
  std::chrono::nanoseconds Now() const override { return std::chrono::seconds(++looks_); }

 private:
  mutable std::int64_t looks_ = 0;
};

std::vector<DeepSpeedApi::RecomputeTimes> TimeAStep(comm::Communicator& world,
                                                    config::RecomputeChoice recompute,
                                                    bool profile) {
  const TinyRun run{.stage = 3, .accumulation = 2};
  config::DsConfig config = TinyConfig(run);
  config.activation_checkpointing.profile = profile;
  const RecomputeClock clock;
  auto model =
      models::BuildModel(models::ParseModelConfig(kLlama, "config.json").value(), at::kFloat);
  const auto engine =
      Engine::create(model, config, {.world = &world, .recompute = recompute, .clock = &clock})
          .value();
  for (int micro = 0; micro < 2; ++micro) {
    const at::Tensor tokens = at::arange(16, at::kLong).view({2, 8});
    engine->backward(engine->forward({.batch = {{"tokens", tokens}, {"labels", tokens}}}));
  }
  EXPECT_TRUE(engine->step().ok());
  const auto times = DeepSpeedApi(*engine).take_recompute_times();
  EXPECT_TRUE(DeepSpeedApi(*engine).take_recompute_times().empty()) << "taken";
  return times;
}

// Of two micro-batches, each of whose runs takes a second.
TEST(RecomputeInTraining, IsTimedBlockByBlockAsConfigured) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto every_second = TimeAStep(world, {.kind = Kind::kBlocks, .every = 2}, true);
    ASSERT_EQ(every_second.size(), 2U);
    EXPECT_EQ(every_second[0].block, "block 1 (model.layers.0)");
    EXPECT_EQ(every_second[1].block, "block 3 (model.layers.2)");
    const auto attention = TimeAStep(world, {.kind = Kind::kAttention}, true);
    EXPECT_EQ(attention.size(), 3U);
    for (const auto& all : {every_second, attention}) {
      for (const DeepSpeedApi::RecomputeTimes& each : all) {
        EXPECT_EQ(each.first, std::chrono::seconds(2)) << each.block;
        EXPECT_EQ(each.again, std::chrono::seconds(2)) << each.block;
      }
    }
    EXPECT_TRUE(TimeAStep(world, {.kind = Kind::kBlocks}, false).empty());
  });
}

TEST(RecomputeInTraining, BuffersAndGeneratorsOfAUsersBlocksAreAsWithout) {
  std::vector<at::Tensor> means[2];
  std::vector<double> losses[2];
  for (const bool recomputed : {false, true}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      at::manual_seed(3);
      auto model = std::make_shared<BlockList>();
      std::vector<std::shared_ptr<Normalised>> blocks;
      for (int i = 0; i < 3; ++i) model->Add(blocks.emplace_back(std::make_shared<Normalised>(i)));
      model->Add(std::make_shared<SumOfSquares>());
      const config::RecomputeChoice choice{.kind = recomputed ? Kind::kBlocks : Kind::kNone};
      const auto engine =
          Engine::create(model, TinyConfig({}), {.world = &world, .recompute = choice}).value();
      for (int step = 0; step < 3; ++step) {
        const at::Tensor x = (at::arange(24, at::kFloat).view({4, 6}) * (step + 1)).sin();
        engine->backward(engine->forward({.batch = {{"x", x}}}));
        losses[recomputed ? 1 : 0].push_back(engine->step().value().loss);
      }
      for (const auto& block : blocks) means[recomputed ? 1 : 0].push_back(block->mean().clone());
      EXPECT_EQ(blocks[0]->runs, 3);
      EXPECT_EQ(blocks[1]->runs, recomputed ? 6 : 3);
    });
  }
  EXPECT_EQ(losses[0], losses[1]);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(means[0][i].equal(means[1][i])) << i;
}

// partition_activations.
TEST(RecomputeTest, RanksThatAreGivenTheSameKeepPartsOfIt) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto leaf = [](std::int64_t count) {
      return at::arange(count, at::kFloat).set_requires_grad(true);
    };
    const at::Tensor even = leaf(6).view({2, 3}), odd = leaf(5);
    const activation::RecomputedForward part = [](activation::Tensors inputs) {
      return activation::Tensors{inputs[0].square() * inputs[1].sum()};
    };
    at::Tensor inner = even * 1.0;
    const at::Tensor expected =
        torch::autograd::grad({part({inner, odd})[0].sum()}, {even, odd})[0];
    inner = even * 1.0;
    const auto calls = [&] { return world.traffic().of(comm::TrafficKind::kAllGather).calls; };
    const auto before = calls();
    const auto outputs = activation::Recompute(part, {inner, odd}, {.split_among = &world});
    EXPECT_EQ(inner.storage().use_count(), 1) << "nobody keeps all of it";
    const auto gradients = torch::autograd::grad({outputs[0].sum()}, {even, odd});
    EXPECT_TRUE(gradients[0].equal(expected));
    EXPECT_EQ(calls() - before, 1) << "what cannot be cut everybody has";
  });
}

}  // namespace
}  // namespace ds::tests
