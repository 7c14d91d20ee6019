#include "runtime/models/initialize.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"

namespace ds::models {
namespace {

// The block's parameters by full name, initialised.
std::map<std::string, at::Tensor> Initialised(Block& block, std::uint64_t seed) {
  AllocateParameters(block);
  block.Initialize(seed);
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : block.named_parameters()) {
    parameters[block.FullName(item.key())] = item.value().detach();
  }
  return parameters;
}

std::shared_ptr<BlockList> Build(const std::string& preset, at::ScalarType dtype = at::kFloat) {
  return BuildModel(ReadModelConfig(preset).value(), dtype);
}

TEST(Initialize, FollowsTheSchemeOfGpt2) {
  const auto model = Build("gpt2-demo");  // 4 layers
  const auto parameters = Initialised(model->block(2), 1);
  const std::string layer = "transformer.h.1.";
  const auto std_of = [&](const std::string& name) {
    return parameters.at(layer + name).std().item<double>();
  };
  EXPECT_NEAR(std_of("attn.c_attn.weight"), 0.02, 4e-4);
  EXPECT_NEAR(std_of("attn.c_proj.weight"), 0.02 / std::sqrt(8.0), 2e-4);
  EXPECT_NEAR(std_of("mlp.c_proj.weight"), 0.02 / std::sqrt(8.0), 2e-4);
  EXPECT_EQ(parameters.at(layer + "attn.c_attn.bias").abs().max().item<double>(), 0.0);
  EXPECT_EQ(parameters.at(layer + "ln_1.weight").min().item<double>(), 1.0);
  EXPECT_EQ(parameters.at(layer + "ln_1.bias").abs().max().item<double>(), 0.0);
}

TEST(Initialize, DependsOnSeedAndNameOnly) {
  const auto a = Build("llama-tiny"), b = Build("llama-tiny");
  const auto layer_b = Initialised(b->block(3), 1);  // first in b, last in a
  Initialised(a->block(1), 1);
  const auto other_layer = Initialised(a->block(2), 1);
  const auto layer_a = Initialised(a->block(3), 1);
  const std::string name = "model.layers.2.mlp.up_proj.weight";
  EXPECT_TRUE(at::equal(layer_a.at(name), layer_b.at(name)));
  EXPECT_FALSE(at::equal(layer_a.at(name), other_layer.at("model.layers.1.mlp.up_proj.weight")));
  EXPECT_FALSE(at::equal(layer_a.at(name), Initialised(a->block(3), 2).at(name)));
}

// Its head holds the table of tokens that block 0 holds elsewhere, with the same first values.
TEST(Initialize, AStageHasItsBlocksAndTheTableThatItReads) {
  const StageBlocks part{.stage = 1, .stages = 2, .chunks = {{3, 6}}, .all = 6};
  const auto config = ReadModelConfig("gpt2-demo").value();
  const auto model = BuildModel(config, at::kFloat, {}, part), full = Build("gpt2-demo");
  ASSERT_EQ(model->size(), 3);
  EXPECT_EQ(model->model_size(), 6);
  EXPECT_EQ(model->index_in_model(0), 3);
  EXPECT_EQ(model->block(0).prefix(), "transformer.h.2");
  Block& head = model->block(2);
  EXPECT_TRUE(model->also_reads(2).empty());
  const std::string table = "transformer.wte.weight";
  EXPECT_TRUE(at::equal(Initialised(head, 1).at(table), Initialised(full->block(0), 1).at(table)));
  for (const auto& item : head.named_parameters()) {
    const bool is_table = head.FullName(item.key()) == table;
    EXPECT_EQ(head.DescribePlacement(item.key(), item.value()).stages,
              is_table ? (std::vector{0, 1}) : std::vector<int>());
  }
}

TEST(Initialize, TakesAll64BitsOfTheSeed) {
  const auto block = Build("gpt2-demo");
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  const at::Tensor first = Initialised(block->block(1), 1).at(name).clone();
  EXPECT_FALSE(
      at::equal(first, Initialised(block->block(1), 1 + (std::uint64_t{1} << 40)).at(name)));
}

TEST(Initialize, ARangeMatchesTheFullTensor) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto model = Build("gpt2-demo", dtype);
    for (const auto& [name, full] : Initialised(model->block(1), 5)) {
      const std::int64_t numel = full.numel();
      for (const std::int64_t first : {std::int64_t{0}, numel / 3 + 1}) {
        const std::int64_t count = (numel - first) / 2;
        const at::Tensor range = at::empty({count}, dtype);
        model->block(1).InitializeRange(name, 5, first, range);
        EXPECT_TRUE(at::equal(range, full.flatten().narrow(0, first, count))) << name;
      }
    }
  }
}

TEST(Initialize, Bf16StartsFromTheRoundedFp32Weights) {
  const auto wide = Initialised(Build("gpt2-demo")->block(1), 1);
  const auto narrow = Initialised(Build("gpt2-demo", at::kBFloat16)->block(1), 1);
  for (const auto& [name, value] : wide) {
    EXPECT_TRUE(at::equal(value.to(at::kBFloat16), narrow.at(name))) << name;
  }
}

TEST(UnmaterialisedParameter, HasAShapeAndNoMemory) {
  const at::Tensor parameter = UnmaterialisedParameter({3, 4}, at::kBFloat16);
  EXPECT_EQ(parameter.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(parameter.storage().nbytes(), 0U);
  EXPECT_TRUE(parameter.requires_grad());
}

TEST(BlockList, ATiedHeadReadsTheEmbedding) {
  const auto tied = Build("gpt2-demo");
  EXPECT_EQ(tied->also_reads(tied->size() - 1), std::vector<int>{0});
  EXPECT_EQ(tied->block(tied->size() - 1).named_parameters().keys(),
            (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias"}));
}

}  // namespace
}  // namespace ds::models
