// A layer of experts in a model of one's own: every ZeRO stage trains it to the same bits, and
// ranks with experts of their own to the same numbers.

#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/parallel/expert/expert_layer.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr std::int64_t kFeatures = 4;

class OwnExpert : public moe::Expert {
 public:
  OwnExpert()
      : up_(register_module("up", torch::nn::Linear(kFeatures, 6))),
        down_(register_module("down", torch::nn::Linear(6, kFeatures))) {}
  at::Tensor forward(const at::Tensor& rows) override {
    return down_->forward(at::relu(up_->forward(rows)));
  }

 private:
  torch::nn::Linear up_, down_;
};

// Numbers in [0, 1) that are the same in every run.
at::Tensor DrawAlike(at::IntArrayRef shape) {
  const at::Tensor positions = at::arange(c10::multiply_integers(shape), at::kFloat);
  return positions.mul(0.618034).frac().view(shape);
}

// Eight rows for the experts, each of which takes two: some get none, some rows are dropped.
class OwnExpertsBlock : public Block {
 public:
  explicit OwnExpertsBlock(std::int64_t experts, const moe::ExpertGroup& ranks = {})
      : Block("net") {
    const moe::ExpertLayerOptions options{.width = kFeatures,
                                          .experts = experts,
                                          .capacity = {.factor = 1.5, .least = 2},
                                          .residual = true,
                                          .ranks = ranks};
    layer_ = register_module("moe", std::make_shared<moe::ExpertLayer>(
                                        options, [] { return std::make_shared<OwnExpert>(); }));
    const c10::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {  // by its name, whoever else is there
      double shift = 0.1;
      for (const char letter : item.key()) shift = shift * 1.3 + 0.37 * letter;
      item.value().copy_(DrawAlike(item.value().sizes()).add(shift).frac() - 0.5);
    }
  }
  Bundle forward(Bundle bundle) override {
    const auto result = layer_->forward(bundle.tensor("input"), DrawAlike);
    bundle.loss = at::mse_loss(result.output, bundle.tensor("labels")) + result.balance_loss * 0.1;
    return bundle;
  }

 private:
  std::shared_ptr<moe::ExpertLayer> layer_;
};

Bundle BatchOfRank(int rank, int step) {
  const at::Tensor values = at::arange(32, at::kFloat).add(rank * 5 + step * 11).remainder(7) - 3;
  return {.batch = {{"input", values.view({8, kFeatures})},
                    {"labels", values.remainder(3).view({8, kFeatures})}}};
}

// An engine that has trained four steps, and its only block.
struct OwnTrainer {
  OwnTrainer(comm::Communicator& world, int stage, std::int64_t experts, int expert_ranks) {
    config::DsConfig config = TinyConfig({.stage = stage});
    config.parallel.expert = expert_ranks;
    const auto mesh = engine::MakeMesh({}, config, world.size()).value();
    auto model = std::make_shared<BlockList>();
    block = std::make_shared<OwnExpertsBlock>(experts, engine::FindModelRanks(mesh, world).experts);
    model->Add(block);
    engine = Engine::create(model, config, {.world = &world}).value();
    for (int step = 0; step < 4; ++step) {
      engine->backward(engine->forward(BatchOfRank(world.rank(), step)));
      EXPECT_TRUE(engine->step().ok());
    }
  }

  std::shared_ptr<OwnExpertsBlock> block;
  std::unique_ptr<Engine> engine;
};

std::map<std::string, at::Tensor> TrainOwnExperts(int stage, std::int64_t experts, int ranks,
                                                  int expert_ranks = 1) {
  std::map<std::string, at::Tensor> parameters;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const OwnTrainer trainer(world, stage, experts, expert_ranks);
    auto exported = ExportAll(*trainer.engine);
    if (world.rank() == 0) parameters = std::move(exported);
  });
  return parameters;
}

TEST(OwnExperts, EveryStageTrainsThemToTheSameBits) {
  const auto unsharded = TrainOwnExperts(0, 7, 2);
  ASSERT_EQ(unsharded.size(), 1U + 8 * 4 + 2) << "the gate, experts and MLP, and their shares";
  const OwnExpertsBlock untrained(7);
  const at::Tensor gate = untrained.named_parameters()["moe.gate.weight"];
  EXPECT_FALSE(unsharded.at("net.moe.gate.weight").equal(gate));
  for (int stage = 1; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const auto sharded = TrainOwnExperts(stage, 7, 2);
    for (const auto& [name, value] : unsharded) EXPECT_TRUE(sharded.at(name).equal(value)) << name;
  }
}

// Gates drop by a rank's own tokens, so that whoever has an expert changes no route.
TEST(OwnExperts, RanksWithExpertsOfTheirOwnTrainTheSame) {
  constexpr std::int64_t kExperts = 8;
  const auto all_experts = TrainOwnExperts(0, kExperts, /*ranks=*/4);
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int expert_ranks : {2, 4}) {
      SCOPED_TRACE(std::to_string(stage) + " " + std::to_string(expert_ranks));
      const auto apart = TrainOwnExperts(stage, kExperts, /*ranks=*/4, expert_ranks);
      ASSERT_EQ(apart.size(), all_experts.size());
      for (const auto& [name, value] : all_experts) {
        EXPECT_TRUE(apart.at(name).allclose(value, 1e-4, 1e-5)) << name;
      }
    }
  }
}

// Each rank of a group names its own experts.
TEST(OwnExperts, RanksReadAndWriteTheirOwn) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    testing::RunRanks(4, [&](comm::Communicator& world) {
      const OwnTrainer trainer(world, stage, /*experts=*/4, /*expert_ranks=*/2);
      Engine& engine = *trainer.engine;
      const int first = world.rank() % 2;  // of the ranks with the same experts
      const std::string key = first == 0 ? "moe.expert_1.up.weight" : "moe.expert_3.up.weight";
      const std::string name = "net." + key;
      const auto exported = ExportAll(engine);
      TensorAccess access(engine);
      const at::Tensor before = access.GetFullFp32Param(name).value();
      if (world.rank() == 0) {
        EXPECT_TRUE(before.equal(exported.at(name)));
      }
      EXPECT_EQ(access.GetFullOptimizerState(name, "exp_avg")->sizes(), before.sizes());
      ASSERT_TRUE(access.SetFullFp32Param(name, before + 1).ok());
      EXPECT_TRUE(access.GetFullFp32Param(name)->equal(before + 1));
      for (const bool keeps : {false, true}) {
        const auto write = [&] {
          trainer.block->named_parameters()[key].fill_(world.rank());
          return OkStatus();
        };
        ASSERT_TRUE(WithGatheredParameters(engine, {name, "net.moe.gate.weight"},
                                           keeps ? std::optional(0) : std::nullopt, write)
                        .ok());
        const at::Tensor expected = keeps ? before * 0 + first : before + 1;
        EXPECT_TRUE(access.GetFullFp32Param(name)->equal(expected)) << keeps;
      }
    });
  }
}

TEST(OwnExperts, EnginesOfOneWorldDivideThemDifferently) {
  testing::RunRanks(4, [](comm::Communicator& world) {
    const OwnTrainer two(world, /*stage=*/2, /*experts=*/4, /*expert_ranks=*/2);
    const OwnTrainer four(world, /*stage=*/2, /*experts=*/4, /*expert_ranks=*/4);
    const auto ours = ExportAll(*two.engine), expected = ExportAll(*four.engine);
    for (const auto& [name, value] : expected) {
      EXPECT_TRUE(ours.at(name).allclose(value, 1e-4, 1e-5)) << name;
    }
  });
}

TEST(OwnExperts, RanksThatCannotShareThemAreRefused) {
  testing::RunRanks(3, [](comm::Communicator& world) {
    EXPECT_THROW(OwnExpertsBlock(8, moe::ExpertGroup(world)), c10::Error);
  });
}

}  // namespace
}  // namespace ds::tests
