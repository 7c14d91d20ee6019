// Evaluation during training: the loss of all labels, however ranks and micro-batches cut them, and
// a training that does not notice it.

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint_format/catalog.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/loop/evaluate.h"
#include "runtime/engine/loop/train_loop.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/models/weights/model_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr std::int64_t kTokensOfSample = 8;

// With dropout, which an evaluation does without.
std::shared_ptr<BlockList> MakeDroppingGpt2() {
  const auto config = models::ParseModelConfig(
      R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 2,
          "n_head": 2, "resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0.3})",
      "config.json");
  auto model = models::BuildModel(config.value(), at::kFloat);
  model->train(true);
  return model;
}

// Sample i has i ignored labels, of eight.
Bundle FourSamples(std::int64_t first, std::int64_t count) {
  const at::Tensor positions =
      at::arange(4 * kTokensOfSample, at::kLong).view({4, kTokensOfSample});
  at::Tensor labels = (positions * 3 + 2).remainder(50);
  for (int i = 1; i < 4; ++i) labels[i].narrow(0, 0, 2 * i).fill_(models::kIgnoredLabel);
  return {.batch = {{"tokens", (positions * 7).remainder(50).narrow(0, first, count)},
                    {"labels", labels.narrow(0, first, count)}}};
}

// The loss of four samples, cut into `ranks` times `micro_batches`.
engine::Evaluation EvaluateAll(int stage, int ranks, std::int64_t micro_batches) {
  engine::Evaluation found;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine =
        Engine::create(MakeDroppingGpt2(), TinyConfig({.stage = stage}), {.world = &world}).value();
    const std::int64_t count = 4 / (ranks * micro_batches);
    std::int64_t micro = 0;
    const auto next = [&]() -> StatusOr<Bundle> {
      return FourSamples((micro++ * ranks + world.rank()) * count, count);
    };
    const auto evaluation = engine::Evaluate(*engine, next, micro_batches).value();
    if (world.rank() == ranks - 1) found = evaluation;
  });
  return found;
}

TEST(Evaluate, IsTheMeanOverAllLabelsInAnyPartition) {
  const engine::Evaluation full = EvaluateAll(0, 1, 1);
  EXPECT_EQ(full.labels, 4 * 8 - 2 - 4 - 6);
  EXPECT_GT(full.loss, 3.0);
  ASSERT_TRUE(full.accuracy.has_value());
  for (const int stage : {0, 1, 2, 3}) {
    const engine::Evaluation split = EvaluateAll(stage, 2, 2);
    EXPECT_NEAR(split.loss, full.loss, 1e-6) << stage;
    EXPECT_EQ(split.labels, full.labels);
    EXPECT_EQ(split.accuracy, full.accuracy);
  }
}

std::vector<double> Train(int stage, bool evaluates) {
  std::vector<double> losses;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    config::DsConfig config = TinyConfig({.stage = stage, .accumulation = 2});
    const auto engine = Engine::create(MakeDroppingGpt2(), config, {.world = &world}).value();
    const auto next = [&]() -> StatusOr<Bundle> { return FourSamples(world.rank(), 1); };
    const auto evaluate = [&] {
      if (evaluates) {
        EXPECT_TRUE(engine::Evaluate(*engine, next, 1).ok());
      }
    };
    for (int step = 0; step < 4; ++step) {
      engine->backward(engine->forward(*next()));
      evaluate();  // between two micro-batches
      engine->backward(engine->forward(*next()));
      const double loss = engine->step().value().loss;
      if (world.rank() == 0) losses.push_back(loss);
      evaluate();
    }
  });
  return losses;
}

TEST(Evaluate, ChangesNothingOfTheTraining) {
  for (const int stage : {0, 2, 3}) EXPECT_EQ(Train(stage, true), Train(stage, false)) << stage;
}

class SilentObserver : public engine::TrainLoopObserver {
 public:
  void OnStep(const StepResult&, double) override {}
  void OnCheckpoint(std::int64_t, const std::filesystem::path&) override {}
  void OnRewind(const StepResult&, const std::filesystem::path&) override {}
};

TEST(Evaluate, ThatFailsTakesNoStepWithItThatIsDueToBeSaved) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const auto engine =
        Engine::create(MakeDroppingGpt2(), TinyConfig({.stage = 2}), {.world = &world}).value();
    const auto next = [&]() -> StatusOr<Bundle> { return FourSamples(world.rank(), 1); };
    checkpoint::Stateful* const parts[] = {&engine->state()};
    checkpoint::Lineage lineage;
    SilentObserver observer;
    const engine::TrainLoopEnd end = engine::RunTrainLoop(
        *engine, next, parts,
        {.total_steps = 3,
         .save_every = 2,
         .checkpoint_root = folder.path(),
         .lineage = &lineage,
         .evaluate = [&]() -> StatusOr<engine::Evaluation> { return DataLossError("a bad id"); }},
        observer);
    EXPECT_EQ(end.status.message(), "evaluation: a bad id");
    EXPECT_FALSE(end.saving);
  });
  const auto newest = checkpoint::FindNewestGood(folder.path());
  ASSERT_TRUE(newest.ok() && newest->found) << newest.status().message();
  EXPECT_EQ(newest->found->step, 3);
}

}  // namespace
}  // namespace ds::tests
