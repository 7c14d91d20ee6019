// A layer of experts computes what DeepSpeed's MoE layer computes, and its gradients.

#include "runtime/parallel/expert/expert_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::moe {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kWidth = 6, kWide = 8;
const std::vector<std::int64_t> kShape = {2, 12, kWidth};

class SmallMlp : public Expert {
 public:
  SmallMlp()
      : up_(register_module("up", torch::nn::Linear(kWidth, kWide))),
        down_(register_module("down", torch::nn::Linear(kWide, kWidth))) {}
  at::Tensor forward(const at::Tensor& rows) override {
    return down_->forward(at::relu(up_->forward(rows)));
  }

 private:
  torch::nn::Linear up_, down_;
};

at::Tensor ReadFlat(const Json& values) { return at::tensor(values.get<std::vector<float>>()); }

ExpertLayerOptions ReadOptions(const Json& golden) {
  const std::string noise = golden.value("noisy_gate_policy", "None");
  return {.width = kWidth,
          .experts = golden["num_experts"],
          .k = golden["k"],
          .capacity = {.drops = golden.value("drop_tokens", true),
                       .factor = golden.value("capacity_factor", 1.0),
                       .least = golden.value("min_capacity", 4)},
          .evaluation_factor = golden.value("eval_capacity_factor", 1.0),
          .noise = noise == "Jitter"    ? GateNoise::kJitter
                   : noise == "RSample" ? GateNoise::kRSample
                                        : GateNoise::kNone,
          .selects_at_random = golden.value("use_rts", true),
          .draws_second = golden.value("top2_2nd_expert_sampling", true),
          .residual = golden.value("use_residual", false)};
}

void ExpectNear(const at::Tensor& ours, const Json& golden, const std::string& what) {
  const at::Tensor expected = ReadFlat(golden);
  ASSERT_TRUE(ours.defined()) << what;
  ASSERT_EQ(ours.numel(), expected.numel()) << what;
  EXPECT_TRUE(ours.flatten().allclose(expected, 2e-5, 2e-6)) << what;
}

void SetParameters(const ExpertLayer& layer, const Json& values) {
  const c10::NoGradGuard no_grad;
  ASSERT_EQ(layer.named_parameters().size(), values.size());
  for (const auto& item : layer.named_parameters()) {
    ASSERT_TRUE(values.contains(item.key())) << item.key();
    item.value().copy_(ReadFlat(values[item.key()]).view(item.value().sizes()));
  }
}

void ExpectLayerGolden(const Json& golden) {
  ExpertLayer layer(ReadOptions(golden["options"]), [] { return std::make_shared<SmallMlp>(); });
  SetParameters(layer, golden["parameters"]);
  layer.train(!golden["options"].value("eval", false));
  std::size_t draws = 0;
  const auto draw = [&](at::IntArrayRef shape) {
    return ReadFlat(golden["uniform"].at(draws++)).view(shape);
  };
  const at::Tensor x = ReadFlat(golden["x"]).view(kShape).requires_grad_();
  const auto result = layer.forward(x, draw);
  EXPECT_EQ(draws, golden["uniform"].size());
  ExpectNear(result.output, golden["output"], "output");
  EXPECT_FLOAT_EQ(result.balance_loss.item<float>(), golden["balance_loss"].get<float>());
  EXPECT_TRUE(result.counts.equal(at::tensor(golden["counts"].get<std::vector<std::int64_t>>())));
  const at::Tensor waves = at::arange(x.numel(), at::kFloat).cos().view(kShape);
  (result.balance_loss + (result.output * waves).sum()).backward();
  ExpectNear(x.grad(), golden["x_gradient"], "input");
  for (const auto& item : layer.named_parameters()) {
    ExpectNear(item.value().grad(), golden["gradients"][item.key()], item.key());
  }
}

TEST(ExpertLayer, ItIsDeepSpeeds) {
  const std::string path = std::string(DS_SOURCE_DIR) + "/tests/unit/moe/goldens/layers.json";
  for (const Json& golden : Json::parse(ReadFile(path).value())) {
    SCOPED_TRACE(golden["options"].dump());
    ExpectLayerGolden(golden);
  }
}

TEST(ExpertLayer, TokensThatDoNotCountGoNowhere) {
  ExpertLayer layer({.width = kWidth, .experts = 2, .capacity = {.least = 1}},
                    [] { return std::make_shared<SmallMlp>(); });
  const at::Tensor x = at::rand({8, kWidth});
  const auto result = layer.forward(
      x, [](at::IntArrayRef shape) { return at::rand(shape); }, at::arange(8).lt(3));
  EXPECT_EQ(result.counts.sum().item<std::int64_t>(), 3);
  EXPECT_TRUE(result.output.narrow(0, 3, 5).eq(0.0).all().item<bool>());
}

}  // namespace
}  // namespace ds::moe
