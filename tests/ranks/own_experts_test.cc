// A layer of experts in a model of one's own: every ZeRO stage trains it to the same bits.

#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/moe/expert_layer.h"
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
  const at::Tensor places = at::arange(c10::multiply_integers(shape), at::kFloat);
  return places.mul(0.618034).frac().view(shape);
}

// Eight rows for seven experts, each of which takes two: some get none, some rows are dropped.
class OwnExpertsBlock : public Block {
 public:
  OwnExpertsBlock() : Block("net") {
    const moe::ExpertLayerOptions options{.width = kFeatures,
                                          .experts = 7,
                                          .capacity = {.factor = 1.5, .least = 2},
                                          .residual = true};
    layer_ = register_module("moe", std::make_shared<moe::ExpertLayer>(
                                        options, [] { return std::make_shared<OwnExpert>(); }));
    const c10::NoGradGuard no_grad;
    double shift = 0.1;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(DrawAlike(parameter.sizes()).add(shift).frac() - 0.5);
      shift += 0.37;
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

std::map<std::string, at::Tensor> TrainOwnExperts(int stage) {
  std::map<std::string, at::Tensor> parameters;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    model->Add(std::make_shared<OwnExpertsBlock>());
    const auto engine =
        Engine::create(model, TinyConfig({.stage = stage}), {.world = &world}).value();
    for (int step = 0; step < 4; ++step) {
      engine->backward(engine->forward(BatchOfRank(world.rank(), step)));
      ASSERT_TRUE(engine->step().ok());
    }
    auto exported = ExportAll(*engine);
    if (world.rank() == 0) parameters = std::move(exported);
  });
  return parameters;
}

TEST(OwnExperts, EveryStageTrainsThemToTheSameBits) {
  const auto unsharded = TrainOwnExperts(0);
  ASSERT_EQ(unsharded.size(), 1U + 8 * 4 + 2) << "the gate, experts and MLP, and their shares";
  const OwnExpertsBlock untrained;
  const at::Tensor gate = untrained.named_parameters()["moe.gate.weight"];
  EXPECT_FALSE(unsharded.at("net.moe.gate.weight").equal(gate));
  for (int stage = 1; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const auto sharded = TrainOwnExperts(stage);
    for (const auto& [name, value] : unsharded) EXPECT_TRUE(sharded.at(name).equal(value)) << name;
  }
}

}  // namespace
}  // namespace ds::tests
