#include "runtime/engine/build_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ds::engine
