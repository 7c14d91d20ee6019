// A model that the test runs itself, against the same model as a list of blocks: any stage, shared
// units, evaluation in between, backward passes of the engine and of the user.

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "runtime/comm/communicator.h"
#include "runtime/engine/chunk_runner.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/loop/evaluate.h"
#include "runtime/engine/unit_list.h"
#include "runtime/engine/unit_passes.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSize = 6;
constexpr int kLayers = 3;

at::Tensor LayerValues(int layer) {
  const at::Tensor values = at::arange(kSize * kSize, at::kFloat).mul(layer + 2).remainder(7);
  return values.sub(3).mul(0.1).view({kSize, kSize});
}

Bundle SquareBatch(int rank, int micro_batch) {
  const at::Tensor values =
      at::arange(4 * kSize, at::kFloat).add(rank * 5 + micro_batch * 11).remainder(9).sub(4);
  return {.batch = {{"input", values.view({4, kSize}).mul(0.3)},
                    {"labels", values.remainder(3).view({4, kSize})}}};
}

at::Tensor RunLayerOf(const at::Tensor& weight, const at::Tensor& x) {
  return at::linear(x, weight).tanh();
}

class SquareLayer : public Block {
 public:
  explicit SquareLayer(int layer) : Block("layer." + std::to_string(layer)), layer_(layer) {
    weight_ = register_parameter("weight", LayerValues(layer));
  }
  Bundle forward(Bundle bundle) override {
    bundle.hidden = RunLayerOf(weight_, layer_ == 0 ? bundle.tensor("input") : bundle.hidden);
    if (layer_ + 1 == kLayers) bundle.loss = at::mse_loss(bundle.hidden, bundle.tensor("labels"));
    return bundle;
  }

 private:
  int layer_;
  at::Tensor weight_;
};

// The model that the test runs.
class VisitedLayers {
 public:
  VisitedLayers(const TinyRun& run, comm::Communicator& world) : world_(world) {
    engine::UnitList list;
    for (int layer = 0; layer < kLayers; ++layer) {
      weights_.push_back(LayerValues(layer).set_requires_grad(true));
      const std::string name = "layer." + std::to_string(layer);
      list.units.push_back({name, {{name + ".weight", weights_.back(), ""}}, {}});
    }
    engine_ = Engine::create(list, TinyConfig(run), {.world = &world}).value();
    passes_.emplace(*engine_);
  }

  // `path` has the layers in the order of the pass.
  at::Tensor Forward(int micro_batch, const std::vector<int>& path = {0, 1, 2}) {
    const Bundle batch = SquareBatch(world_.rank(), micro_batch);
    passes_->BeginForward({.samples = 4});
    at::Tensor x = batch.tensor("input");
    for (const int layer : path) {
      passes_->Enter(layer);
      x = passes_->Leave(layer, {RunLayerOf(weights_[static_cast<std::size_t>(layer)], x)})[0];
    }
    return passes_->EndForward({at::mse_loss(x, batch.tensor("labels"))})[0];
  }

  Engine& engine() { return *engine_; }

 private:
  comm::Communicator& world_;
  std::vector<at::Tensor> weights_;
  std::unique_ptr<Engine> engine_;
  std::optional<UnitPasses> passes_;
};

TEST(UnitPasses, TrainAsAListOfBlocks) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage, .accumulation = 2};
      auto blocks = std::make_shared<BlockList>();
      for (int layer = 0; layer < kLayers; ++layer) {
        blocks->Add(std::make_shared<SquareLayer>(layer));
      }
      const auto engine = Engine::create(blocks, TinyConfig(run), {.world = &world}).value();
      VisitedLayers by_engine(run, world), by_user(run, world);
      for (int m = 0; m < 6; ++m) {
        engine->backward(engine->forward(SquareBatch(world.rank(), m)));
        by_engine.engine().backward(by_engine.Forward(m));
        by_user.Forward(m).backward();
        const StepResult expected = engine->step().value();
        for (VisitedLayers* model : {&by_engine, &by_user}) {
          const StepResult result = model->engine().step().value();
          EXPECT_EQ(result.boundary, m % 2 == 1);
          EXPECT_EQ(result.loss, expected.loss);
          EXPECT_EQ(result.grad_norm, expected.grad_norm);
        }
        const c10::NoGradGuard no_grad;
        EXPECT_FALSE(by_user.Forward(m + 50, {2, 0}).requires_grad());
      }
      const auto expected = ExportAll(*engine);
      const auto mine = ExportAll(by_engine.engine());
      const auto users = ExportAll(by_user.engine());
      for (const auto& [name, value] : expected) {
        EXPECT_TRUE(value.equal(mine.at(name))) << name << " at stage " << stage;
        EXPECT_TRUE(value.equal(users.at(name))) << name << " at stage " << stage;
      }
    });
  }
}

TEST(UnitPasses, MayTakeAnotherPathEachTime) {
  const std::vector<std::vector<int>> paths{{0, 1, 2}, {2, 1, 0}, {1, 1, 1, 2}, {0}, {2, 0, 2}};
  std::map<std::string, at::Tensor> unsharded;
  for (const int stage : {0, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      VisitedLayers model({.stage = stage}, world);
      for (int m = 0; m < static_cast<int>(paths.size()); ++m) {
        model.Forward(m, paths[static_cast<std::size_t>(m)]).backward();
        EXPECT_TRUE(model.engine().step().value().boundary);
      }
      const auto weights = ExportAll(model.engine());
      if (world.rank() != 0) return;
      if (stage == 0) unsharded = weights;
      for (const auto& [name, value] : unsharded) {
        EXPECT_TRUE(value.allclose(weights.at(name), 1e-6, 1e-7)) << name;
      }
    });
  }
}

// A pipeline stage's part of the model. The first layer reads the last one's weight, too, which
// both stages hold then.
class StageLayers : public engine::ChunkRunner {
 public:
  StageLayers(comm::Communicator& world, int stages)
      : first_(world.rank()), end_(world.rank() + 1 == stages ? kLayers : 1) {
    engine::UnitList list;
    for (int layer = first_; layer < end_; ++layer) Add(layer, stages == 1, &list);
    if (end_ < kLayers) Add(kLayers - 1, false, &list);
    config::DsConfig config = TinyConfig({.stage = 1, .accumulation = 4});
    config.parallel.pipeline = stages;
    engine_ = Engine::create(list, config, {.world = &world}).value();
    passes_.emplace(*engine_);
  }

  Bundle RunChunk(engine::TrainedModel& /*model*/, const engine::RankTopology& /*topology*/,
                  Bundle bundle, int /*chunk*/) override {
    passes_->RunChunk([&] {
      passes_->BeginForward({});
      at::Tensor x = first_ == 0 ? bundle.tensor("input") : bundle.hidden;
      std::size_t unit = 0;
      for (int layer = first_; layer < end_; ++layer, ++unit) {
        passes_->Enter(static_cast<int>(unit));
        x = passes_->Leave(static_cast<int>(unit), {RunLayerOf(weights_[unit], x)})[0];
        if (layer > 0) continue;
        const int last = static_cast<int>(weights_.size()) - 1;
        passes_->Enter(last);
        x = passes_->Leave(last, {RunLayerOf(weights_.back(), x)})[0];
      }
      passes_->EndForward({x});
      bundle.hidden = x;
    });
    if (end_ == kLayers) bundle.loss = at::mse_loss(bundle.hidden, bundle.tensor("labels"));
    return bundle;
  }

  StatusOr<StepResult> Train() {
    return engine::Executor(*engine_, *this).RunStep([&] { return SquareBatch(0, next_batch_++); });
  }
  StatusOr<engine::Evaluation> Evaluate() {
    int batch = 0;
    return engine::Evaluate(
        *engine_, *this, [&] { return SquareBatch(0, batch++); }, 2);
  }
  Engine& engine() { return *engine_; }

 private:
  void Add(int layer, bool is_alone, engine::UnitList* list) {
    weights_.push_back(LayerValues(layer).set_requires_grad(true));
    const std::string name = "layer." + std::to_string(layer) + ".weight";
    const bool is_shared = !is_alone && layer + 1 == kLayers;
    const std::vector<int> stages = is_shared ? std::vector<int>{0, 1} : std::vector<int>();
    list->units.push_back({name, {{name, weights_.back(), "", stages}}, {}});
  }

  const int first_;
  const int end_;
  int next_batch_ = 0;
  std::vector<at::Tensor> weights_;
  std::unique_ptr<Engine> engine_;
  std::optional<UnitPasses> passes_;
};

TEST(UnitPasses, StagesTrainAsOne) {
  std::vector<StepResult> expected;
  std::map<std::string, at::Tensor> weights;
  double loss = 0.0;
  for (const int stages : {1, 2}) {
    testing::RunRanks(stages, [&](comm::Communicator& world) {
      StageLayers model(world, stages);
      std::vector<StepResult> results;
      for (int step = 0; step < 3; ++step) results.push_back(model.Train().value());
      const double evaluated = model.Evaluate().value().loss;
      const auto exported = ExportAll(model.engine());
      if (stages == 1) {
        expected = results;
        weights = exported;
        loss = evaluated;
        return;
      }
      EXPECT_NEAR(evaluated, loss, 1e-6);
      for (std::size_t step = 0; step < results.size(); ++step) {
        EXPECT_NEAR(results[step].loss, expected[step].loss, 1e-6);
        EXPECT_NEAR(results[step].grad_norm, expected[step].grad_norm, 1e-6);
      }
      for (const auto& [name, value] : exported) {
        EXPECT_TRUE(value.allclose(weights.at(name), 1e-6, 1e-7)) << name;
      }
      EXPECT_EQ(exported.size(), world.rank() == 0 ? weights.size() : 0);
    });
  }
}

TEST(UnitPasses, CannotBeRunByTheEngine) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    VisitedLayers model({}, world);
    EXPECT_THROW(model.engine().forward(SquareBatch(0, 0)), c10::Error);
  });
}

TEST(UnitPasses, AParameterOfTwoUnitsIsRefused) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const at::Tensor weight = LayerValues(0).set_requires_grad(true);
    engine::UnitList twice;
    twice.units = {{"a", {{"a.w", weight, ""}}, {}}, {"b", {{"b.w", weight, ""}}, {}}};
    const auto engine = Engine::create(twice, TinyConfig({}), {.world = &world});
    ASSERT_FALSE(engine.ok());
    EXPECT_THAT(engine.status().message(), HasSubstr("parameter b.w"));
  });
}

}  // namespace
}  // namespace ds::tests
