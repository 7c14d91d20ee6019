// Gates give what DeepSpeed's give, bit for bit, on the same logits and random numbers.

#include "runtime/parallel/expert/gating.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::moe {
namespace {

using Json = nlohmann::json;

Json ReadGoldens() {
  const std::string path = std::string(DS_SOURCE_DIR) + "/tests/unit/moe/goldens/gates.json";
  return Json::parse(ReadFile(path).value());
}

template <typename Element>
at::Tensor ReadMatrix(const Json& rows) {
  std::vector<at::Tensor> read;
  for (const Json& row : rows) read.push_back(at::tensor(row.get<std::vector<Element>>()));
  return at::stack(read);
}

Capacity ReadCapacity(const Json& options) {
  return {.drops = options["drops"], .factor = options["factor"], .least = options["least"]};
}

Routes RunGate(const at::Tensor& logits, const Json& golden) {
  const Json& options = golden["options"];
  const Capacity capacity = ReadCapacity(options);
  const bool draws = options.value("noise", false), selects = options.value("rts", false);
  std::vector<at::Tensor> uniform;  // in the order of their use
  for (const Json& numbers : golden["uniform"]) uniform.push_back(ReadMatrix<float>(numbers));
  const at::Tensor noise = draws ? MakeGumbel(uniform.front()) : at::Tensor();
  if (golden["gate"] == "top1") {
    Top1Options top1{.capacity = capacity, .choice_noise = noise};
    if (selects) top1.selection_noise = uniform.back();
    if (options.contains("used")) {
      top1.used = at::arange(logits.size(0)).lt(options["used"].get<std::int64_t>());
    }
    return GateTop1(logits, top1);
  }
  if (golden["gate"] == "top2") {
    return GateTop2(logits, {.capacity = capacity, .second_noise = noise});
  }
  const bool by_position = options["policy"] == "position";
  return GateTopK(logits,
                  {.k = options["k"],
                   .capacity = capacity,
                   .policy = by_position ? DropPolicy::kByPosition : DropPolicy::kByProbability});
}

void ExpectGolden(const Json& golden) {
  const at::Tensor logits = ReadMatrix<float>(golden["logits"]).requires_grad_();
  const Routes routes = RunGate(logits, golden);
  EXPECT_TRUE(routes.experts.equal(ReadMatrix<std::int64_t>(golden["experts"])));
  EXPECT_TRUE(routes.slots.equal(ReadMatrix<std::int64_t>(golden["places"])));
  EXPECT_TRUE(routes.weights.equal(ReadMatrix<float>(golden["weights"])));
  EXPECT_TRUE(routes.counts.equal(at::tensor(golden["counts"].get<std::vector<std::int64_t>>())));
  EXPECT_EQ(routes.capacity, golden["capacity"].get<std::int64_t>());
  EXPECT_EQ(routes.balance_loss.item<float>(), golden["balance_loss"].get<float>());
  const at::Tensor waves = at::arange(routes.weights.numel(), at::kFloat).cos();
  ((routes.weights * waves.view_as(routes.weights)).sum() + routes.balance_loss).backward();
  EXPECT_TRUE(logits.grad().allclose(ReadMatrix<float>(golden["gradient"]), 1e-5, 1e-7));
}

TEST(Gating, EveryGateIsDeepSpeeds) {
  const Json goldens = ReadGoldens();
  bool drops = false;
  for (const Json& golden : goldens["gates"]) {
    SCOPED_TRACE(golden["gate"].get<std::string>() + " " + golden["options"].dump());
    ExpectGolden(golden);
    for (const Json& route : golden["experts"]) {
      for (const Json& expert : route) drops |= expert == -1;
    }
  }
  EXPECT_TRUE(drops) << "no golden has an expert that is full";
}

TEST(Gating, JitterIsDeepSpeeds) {
  const Json golden = ReadGoldens()["jitter"];
  const at::Tensor x = ReadMatrix<float>(golden["x"]);
  const at::Tensor uniform = ReadMatrix<float>(golden["uniform"]);
  EXPECT_TRUE(Jitter(x, uniform, golden["epsilon"]).equal(ReadMatrix<float>(golden["result"])));
  EXPECT_TRUE(Jitter(x, uniform, 0.0).equal(x));
}

TEST(Gating, LogitLossIsThatOfPyTorch) {
  const Json golden = ReadGoldens()["logit_loss"];
  EXPECT_FLOAT_EQ(LogitLoss(ReadMatrix<float>(golden["logits"])).item<float>(),
                  golden["loss"].get<float>());
}

TEST(Gating, FewerTokensThanTheLeastCapacityAreRefused) {
  EXPECT_THROW(GateTop1(at::zeros({3, 2}), {.capacity = {.least = 4}}), c10::Error);
}

TEST(Gating, ATokenWithAllRoutesDroppedHasNoWeight) {
  const at::Tensor logits = at::zeros({6, 2});  // ties: all tokens want the same expert
  const Routes routes = GateTopK(
      logits, {.k = 1, .capacity = {.factor = 1.0, .least = 1}, .policy = DropPolicy::kByPosition});
  EXPECT_EQ(routes.capacity, 3);
  EXPECT_EQ(routes.experts.eq(-1).sum().item<std::int64_t>(), 3);
  EXPECT_EQ(routes.weights.sum().item<float>(), 3.0F);
}

}  // namespace
}  // namespace ds::moe
