// A linear layer whose adapter drops inputs computes what PEFT's does, of the same factors.

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/models/block.h"
#include "runtime/models/kernels/dropout.h"
#include "runtime/models/layers/layers.h"
#include "tests/places.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr RandomPosition kOrigin{.key = 77, .first_sample = 3, .first_position = 5, .block = 2};

at::Tensor ReadTensor(const Json& golden) {
  return at::tensor(golden["values"].get<std::vector<float>>())
      .view(golden["shape"].get<std::vector<std::int64_t>>());
}

std::shared_ptr<Product> MakeLayer(const Json& golden) {
  const at::Tensor weight = ReadTensor(golden["tensors"]["weight"]);
  auto layer = MakeProduct({.in = weight.size(1), .out = weight.size(0), .bias = true}, at::kFloat);
  layer->AddAdapter({.rank = 2,
                     .scale = golden["scale"],
                     .magnitudes = golden["magnitudes"],
                     .dropout = 0.25,
                     .name = "part"});
  for (auto& item : layer->named_parameters()) {
    item.value().set_data(ReadTensor(golden["tensors"][item.key()]));
  }
  return layer;
}

class AdapterDropoutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto text = ReadFile(DS_SOURCE_DIR "/tests/unit/models/goldens/adapter_dropout.json");
    ASSERT_TRUE(text.ok()) << text.status().message();
    goldens_ = Json::parse(*text);
  }
  Json goldens_;
};

TEST_F(AdapterDropoutTest, MatchesPeft) {
  for (const Json& golden : goldens_) {
    SCOPED_TRACE(golden["magnitudes"] ? "DoRA" : "LoRA");
    const auto layer = MakeLayer(golden);
    const at::Tensor x = ReadTensor(golden["input"]).requires_grad_(true);
    const at::Tensor y = layer->forward(x, &kOrigin);
    EXPECT_TRUE(y.allclose(ReadTensor(golden["output"]), 1e-5, 1e-6));
    y.square().sum().backward();
    EXPECT_TRUE(x.grad().allclose(ReadTensor(golden["input_gradient"]), 1e-5, 1e-5));
    for (const auto& [name, gradient] : golden["gradients"].items()) {
      const at::Tensor& parameter = layer->named_parameters()[name];
      EXPECT_TRUE(parameter.grad().allclose(ReadTensor(gradient), 1e-5, 1e-5)) << name;
    }
  }
}

TEST_F(AdapterDropoutTest, DropsOnlyWhileTraining) {
  const auto layer = MakeLayer(goldens_[0]);
  const at::Tensor x = ReadTensor(goldens_[0]["input"]);
  layer->train(false);
  const auto of = [&](const char* name) { return layer->named_parameters()[name]; };
  const double scale = goldens_[0]["scale"];
  const at::Tensor change =
      x.matmul(of("lora_A.weight").t()).matmul(of("lora_B.weight").t()) * scale;
  EXPECT_TRUE(layer->forward(x, &kOrigin)
                  .allclose(x.matmul(of("weight").t()) + of("bias") + change, 1e-5, 1e-6));
  EXPECT_TRUE(layer->forward(x).equal(layer->forward(x, &kOrigin)));
}

// A caller that forgets to say where its rows stand is told, and does not train without dropout.
TEST_F(AdapterDropoutTest, NeedsThePositionsOfItsInputs) {
  const auto layer = MakeLayer(goldens_[0]);
  try {
    layer->forward(ReadTensor(goldens_[0]["input"]));
    FAIL() << "no place";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the adapter of part drops inputs, and needs their positions"));
  }
}

// A rank that has some of the inputs draws what one rank with all of them draws.
TEST(AdapterDropoutDraw, DoesNotDependOnThePartitionOfInputs) {
  DropoutDraw draw{.probability = 0.5, .origin = kOrigin, .site = DropoutSite::kAdapterInput};
  const at::Tensor full = DropoutFactors({2, 3, 23}, draw, at::kFloat);
  for (const auto& [first, count] : {std::pair{0, 11}, {11, 12}, {4, 8}, {22, 1}, {5, 2}}) {
    draw.origin.first_column = first;
    const at::Tensor expected = full.narrow(2, first, count);
    EXPECT_TRUE(DropoutFactors({2, 3, count}, draw, at::kFloat).equal(expected)) << first;
    EXPECT_TRUE(DropoutFactorsByOperators({2, 3, count}, draw, at::kFloat).equal(expected));
  }
}

}  // namespace
}  // namespace ds::models
