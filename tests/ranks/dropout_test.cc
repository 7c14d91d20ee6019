// Dropout in training: a step's loss, norm and parameters do not depend on how its samples are cut
// into ranks and micro-batches, nor on the stage.

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "runtime/comm/communicator.h"
#include "runtime/models/batch.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr std::int64_t kSequence = 8;
constexpr std::int64_t kStepSamples = 8;  // of a step

std::shared_ptr<BlockList> MakeDroppingGpt2(const std::string& probability) {
  const auto config = models::ParseModelConfig(
      R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 2,
          "n_head": 2, "resid_pdrop": )" +
          probability + R"(, "embd_pdrop": )" + probability + R"(, "attn_pdrop": )" + probability +
          "}",
      "config.json");
  auto model = models::BuildModel(config.value(), at::kFloat);
  model->train(true);
  return model;
}

struct Split {
  int ranks = 1;
  int stage = 0;
  std::int64_t accumulation = 1;
};

struct DropoutOutcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

DropoutOutcome Train(const Split& split, const std::string& probability) {
  DropoutOutcome outcome;
  testing::RunRanks(split.ranks, [&](comm::Communicator& world) {
    const auto config = TinyConfig({.stage = split.stage, .accumulation = split.accumulation});
    const auto engine =
        Engine::create(MakeDroppingGpt2(probability), config, {.world = &world}).value();
    const std::int64_t each = kStepSamples / (split.ranks * split.accumulation);
    std::vector<StepResult> steps;
    for (int step = 0; step < 3; ++step) {
      for (std::int64_t micro = 0; micro < split.accumulation; ++micro) {
        const at::Tensor positions =
            at::arange(kStepSamples * kSequence, at::kLong).view({kStepSamples, kSequence});
        const std::int64_t first = (micro * split.ranks + world.rank()) * each;
        const at::Tensor tokens = (positions * 7 + step).remainder(50).narrow(0, first, each);
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

TEST(DropoutInTraining, DoesNotDependOnThePartition) {
  const DropoutOutcome expected = Train({}, "0.2");
  for (const Split& split :
       {Split{.accumulation = 4}, Split{.ranks = 2, .stage = 1}, Split{.ranks = 4, .stage = 3},
        Split{.ranks = 2, .stage = 2, .accumulation = 2}, Split{.ranks = 4, .accumulation = 2}}) {
    SCOPED_TRACE(std::to_string(split.ranks) + " ranks, stage " + std::to_string(split.stage));
    const DropoutOutcome ours = Train(split, "0.2");
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
      EXPECT_NEAR(ours.steps[i].loss, expected.steps[i].loss, 2e-6);
      EXPECT_NEAR(ours.steps[i].grad_norm, expected.steps[i].grad_norm, 2e-6);
    }
    for (const auto& [name, value] : expected.parameters) {
      // Adam makes much of gradients that are nothing but rounding.
      EXPECT_LT((ours.parameters.at(name) - value).abs().max().item<double>(), 3e-4) << name;
    }
  }
  // It has dropped something, and something else in every step.
  const DropoutOutcome without = Train({}, "0.0");
  EXPECT_GT(std::abs(without.steps[0].loss - expected.steps[0].loss), 1e-4);
}

TEST(DropoutInTraining, AnotherStepDropsOtherElements) {
  testing::RunRanks(1, [&](comm::Communicator& world) {
    config::DsConfig config = TinyConfig({});
    config.optimizer.lr = 0.0;
    config.optimizer.weight_decay = 0.0;
    const auto engine = Engine::create(MakeDroppingGpt2("0.2"), config, {.world = &world}).value();
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) {
      const at::Tensor tokens = at::arange(16, at::kLong).view({2, kSequence});
      engine->backward(engine->forward({.batch = {{"tokens", tokens}, {"labels", tokens}}}));
      losses.push_back(engine->step().value().loss);
    }
    EXPECT_NE(losses[0], losses[1]);
  });
}

// A block that says where its samples stand among all that the step's random numbers are drawn for.
class PositionBlock : public Block {
 public:
  PositionBlock() : Block("net") { weight = register_parameter("weight", at::ones({1})); }
  Bundle forward(Bundle bundle) override {
    const std::int64_t first = bundle.random.first_sample;
    for (std::int64_t i = 0; i < models::CountSamples(bundle.batch); ++i) {
      positions.push_back(first + i);
    }
    bundle.loss = (bundle.tensor("input").mean() * weight).sum();
    return bundle;
  }

  at::Tensor weight;
  std::vector<std::int64_t> positions;
};

// The positions of all samples of a step, whose micro-batches have these sizes on every rank.
std::vector<std::int64_t> ListPositions(int ranks, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> positions;
  std::mutex mutex;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto block = std::make_shared<PositionBlock>();
    auto model = std::make_shared<BlockList>();
    model->Add(block);
    config::DsConfig config = TinyConfig({.accumulation = static_cast<std::int64_t>(sizes.size())});
    config.batch.train_micro_batch_size_per_gpu = 4;
    const auto engine = Engine::create(model, config, {.world = &world}).value();
    for (const std::int64_t size : sizes) {
      engine->backward(engine->forward({.batch = {{"input", at::ones({size, 2})}}}));
    }
    EXPECT_TRUE(engine->step().ok());
    const std::lock_guard lock(mutex);
    positions.insert(positions.end(), block->positions.begin(), block->positions.end());
  });
  return positions;
}

TEST(DropoutInTraining, NoTwoSamplesOfAStepDropTheSame) {
  const std::vector<std::vector<std::int64_t>> steps = {
      {4, 4, 4}, {10, 4}, {4, 10, 2}, {10, 1, 4, 7}, {3, 4, 1}};
  for (const std::vector<std::int64_t>& sizes : steps) {
    for (const int ranks : {1, 3}) {
      const std::vector<std::int64_t> positions = ListPositions(ranks, sizes);
      const std::set<std::int64_t> distinct(positions.begin(), positions.end());
      EXPECT_EQ(distinct.size(), positions.size())
          << ranks << " ranks, micro-batches of " << ::testing::PrintToString(sizes);
      if (sizes == steps[0]) {
        EXPECT_EQ(*distinct.rbegin(), ranks * 12 - 1) << "as in any other cut of these samples";
      }
    }
  }
}

}  // namespace
}  // namespace ds::tests
