#include "runtime/engine/parameter_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/layers/layers.h"
#include "runtime/models/layers/norms.h"

namespace ds::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Pair : public Block {
 public:
  explicit Pair(std::string prefix) : Block(std::move(prefix)) {
    register_parameter("w", models::UnmaterialisedParameter({2, 3}, at::kFloat));
    register_parameter("b", models::UnmaterialisedParameter({3}, at::kFloat));
  }
  Bundle forward(Bundle bundle) override { return bundle; }
};

TEST(BuildUnits, IsOneUnitPerBlockWithFullNamesInOrder) {
  BlockList model;
  model.Add(std::make_shared<Pair>(""));
  model.Add(std::make_shared<Pair>("layer.0"), {0});
  const auto units = BuildUnits(model);
  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[0].name, "block 0");
  EXPECT_EQ(units[1].name, "block 1 (layer.0)");
  EXPECT_EQ(units[0].parameters[1].name, "b");
  EXPECT_EQ(units[1].parameters[0].name, "layer.0.w");
  EXPECT_TRUE(units[1].parameters[0].tensor.is_same(model.block(1).parameters()[0]));
  EXPECT_THAT(units[0].also_reads, IsEmpty());
  EXPECT_THAT(units[1].also_reads, ElementsAre(0));
}

TEST(BuildUnits, GivesEachParameterTheGroupThatIsAskedFor) {
  BlockList model;
  model.Add(std::make_shared<Pair>("layer.0"));
  model.Add(std::make_shared<Pair>("layer.1"));
  const auto units =
      BuildUnits(model, optim::WithLayerwiseRates(optim::NoDecayOnNormsAndBiases, 2, 0.5));
  EXPECT_EQ(units[0].parameters[0].group, (optim::ParameterGroup{.lr_factor = 0.5}));
  EXPECT_EQ(units[1].parameters[1].group, (optim::ParameterGroup{.weight_decay_factor = 0.0}));
}

class Table : public Pair {
 public:
  using Pair::Pair;
  bool backward_reads_parameters() const override { return false; }
};

TEST(BuildUnits, KnowsUnitsWithABackwardThatReadsNoParameters) {
  BlockList model;
  for (const char* const prefix : {"first", "second", "third"}) {
    model.Add(std::make_shared<Table>(prefix));
  }
  model.Add(std::make_shared<Pair>("last"));
  const auto reads = [&](const config::RecomputeChoice& recompute) {
    std::vector<bool> all;
    for (const auto& unit : BuildUnits(model, optim::OneGroup, recompute)) {
      all.push_back(unit.backward_reads);
    }
    return all;
  };
  EXPECT_THAT(reads({}), ElementsAre(false, false, false, true));
  EXPECT_THAT(reads({.kind = config::RecomputeChoice::Kind::kBlocks}),
              ElementsAre(false, true, true, true))
      << "what is computed again reads them";
}

class Mixed : public Block {
 public:
  Mixed() : Block("block") {
    const at::TensorOptions options = at::kFloat;
    register_parameter("own", models::UnmaterialisedParameter({3}, options));
    register_module("linear", std::make_shared<models::Linear>(
                                  models::Linear::Shape{.in = 2, .out = 3, .bias = true}, options));
    register_module(
        "conv", std::make_shared<models::Conv1d>(
                    models::Conv1d::Shape{
                        .in = 2, .out = 3, .bias = true, .layout = models::WeightLayout::kInOut},
                    options));
    register_module("norm", std::make_shared<models::LayerNorm>(3, 1e-5, options));
    register_module("table",
                    std::make_shared<models::Embedding>(models::Embedding::Shape{4, 3}, options));
  }
  Bundle forward(Bundle bundle) override { return bundle; }
};

std::vector<std::string> ReducedInBf16(const std::vector<std::string>& classes) {
  BlockList model;
  model.Add(std::make_shared<Mixed>());
  std::vector<zero::ParameterUnit> units = BuildUnits(model);
  ReduceModulesIn(at::kBFloat16, classes, model, &units);
  std::vector<std::string> names;
  for (const zero::NamedParameter& parameter : units[0].parameters) {
    if (parameter.reduction == at::kBFloat16) names.push_back(parameter.name);
  }
  return names;
}

TEST(SafeModules, AreFoundByTheNamesOfTheirPyTorchClasses) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ReducedInBf16({"torch.nn.Linear", "torch.nn.Conv2d"}),
            (Names{"block.linear.weight", "block.linear.bias"}));
  EXPECT_EQ(ReducedInBf16({"transformers.pytorch_utils.Conv1D"}),
            (Names{"block.conv.weight", "block.conv.bias"}));
  EXPECT_EQ(ReducedInBf16({}), Names{});
}

TEST(SparseRows, AreThoseOfTablesThatNoOtherBlockReads) {
  BlockList model;
  model.Add(std::make_shared<Mixed>());
  model.Add(std::make_shared<Mixed>(), {0});
  std::vector<zero::ParameterUnit> units = BuildUnits(model);
  ReduceEmbeddingsByRows(model, &units);
  for (const zero::NamedParameter& parameter : units[0].parameters) {
    EXPECT_FALSE(parameter.sparse_rows) << parameter.name << " is read by a head";
  }
  for (const zero::NamedParameter& parameter : units[1].parameters) {
    EXPECT_EQ(parameter.sparse_rows, parameter.name == "block.table.weight") << parameter.name;
  }
}

}  // namespace
}  // namespace ds::engine
