// A tiled layer has DeepSpeed's tiles, and computes what they compute.

#include "runtime/models/layers/tiled_linear.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

at::Tensor ReadTensor(const Json& values, at::IntArrayRef shape) {
  return at::tensor(values.get<std::vector<float>>()).view(shape);
}

std::map<std::string, at::Tensor> ListParameters(const BlockList& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      parameters[block->FullName(item.key())] = item.value();
    }
  }
  return parameters;
}

void ExpectGolden(const Json& golden) {
  BlockList model;
  const TiledLinear layer{.name = "layer",
                          .in = golden["in"],
                          .out = golden["out"],
                          .in_splits = golden["in_splits"],
                          .out_splits = golden["out_splits"],
                          .bias = golden["bias"]};
  ASSERT_TRUE(AddTiledLinear(model, layer).ok());
  EXPECT_EQ(model.size(), layer.in_splits * layer.out_splits);
  for (const auto& block : model.blocks()) AllocateParameters(*block);
  std::map<std::string, at::Tensor> parameters = ListParameters(model);
  ASSERT_EQ(parameters.size(), golden["tiles"].size());
  for (const auto& [name, tile] : golden["tiles"].items()) {
    const auto shape = tile["shape"].get<std::vector<std::int64_t>>();
    const auto found = parameters.find("layer." + name);
    ASSERT_NE(found, parameters.end()) << name;
    ASSERT_EQ(found->second.sizes(), at::IntArrayRef(shape)) << name;
    found->second.set_data(ReadTensor(tile["values"], shape));
  }
  const Bundle bundle = RunBlocks(model, {.hidden = ReadTensor(golden["input"], {3, layer.in})});
  EXPECT_TRUE(bundle.hidden.allclose(ReadTensor(golden["output"], {3, layer.out}), 1e-5, 1e-6));
  EXPECT_TRUE(bundle.extras.empty()) << "what passes between tiles is not the next block's";
  bundle.hidden.square().sum().backward();
  for (const auto& [name, tile] : golden["tiles"].items()) {
    const at::Tensor& parameter = parameters.at("layer." + name);
    EXPECT_TRUE(
        parameter.grad().allclose(ReadTensor(tile["gradient"], parameter.sizes()), 1e-4, 1e-5))
        << name;
  }
}

TEST(TiledLinearTest, HasDeepSpeedsTilesAndComputesTheSame) {
  const auto text = ReadFile(DS_SOURCE_DIR "/tests/unit/models/goldens/tiled_linear.json");
  ASSERT_TRUE(text.ok()) << text.status().message();
  for (const Json& golden : Json::parse(*text)) ExpectGolden(golden);
}

TEST(TiledLinearTest, RefusesPartsWithoutFeatures) {
  BlockList model;
  EXPECT_THAT(
      AddTiledLinear(model, {.name = "head", .in = 4, .out = 8, .in_splits = 5}).message(),
      HasSubstr("head: in_splits is 5, and 4 features can be split into 1 to as many parts"));
  EXPECT_THAT(AddTiledLinear(model, {.name = "head", .in = 4, .out = 8, .out_splits = 0}).message(),
              HasSubstr("head: out_splits is 0, and 8 features"));
  EXPECT_EQ(model.size(), 0);
}

}  // namespace
}  // namespace ds::models
