// Plans of passes through a part of the units, as a stage of several chunks makes them, and of
// backward passes behind which the gradients of weights come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Five units at stage 2, of which the last also reads the first; a backward through [3, 5).
ResidencyPlan::Input MakeInput(PassPosition::Kind kind) {
  ResidencyPlan::Input input{
      .units = std::vector<PlannedUnit>(5),
      .sharding = config::ShardingOfStage(2, 2),
      .positions = {{kind, 0, 4}, {kind, 0, 3}, {PassPosition::Kind::kEndOfMicroBatch}},
      .pass = UnitRange{3, 5}};
  for (PlannedUnit& unit : input.units) unit = {.bytes = 10, .trained = true};
  input.units[4].also_reads = {0};
  return input;
}

std::vector<Action> ListAll(const ResidencyPlan::Input& input) {
  const ResidencyPlan plan(input);
  std::vector<Action> all;
  for (int position = 0; position < static_cast<int>(input.positions.size()); ++position) {
    for (const Action& action : plan.ListActions(position - 1, position)) all.push_back(action);
  }
  return all;
}

TEST(PartialPasses, EndTheGradientsOfTheirUnitsAndOfThoseThatTheyRead) {
  using Kind = Action::Kind;
  EXPECT_THAT(
      ListAll(MakeInput(PassPosition::Kind::kBackward)),
      ElementsAre(Action{Kind::kReduce, 4}, Action{Kind::kReduce, 3}, Action{Kind::kReduce, 0}));
  ResidencyPlan::Input full = MakeInput(PassPosition::Kind::kBackward);
  full.pass.reset();
  EXPECT_EQ(ListAll(full).size(), 5u);
  EXPECT_NE(ResidencyPlan(full).hash(),
            ResidencyPlan(MakeInput(PassPosition::Kind::kBackward)).hash());
}

TEST(PartialPasses, GradientsThatComeLaterEndLater) {
  ResidencyPlan::Input input = MakeInput(PassPosition::Kind::kBackward);
  input.gradients_come_later = true;
  EXPECT_THAT(ListAll(input), IsEmpty());
  EXPECT_NE(ResidencyPlan(input).hash(),
            ResidencyPlan(MakeInput(PassPosition::Kind::kBackward)).hash());
  EXPECT_EQ(ListAll(MakeInput(PassPosition::Kind::kWeightGradient)),
            ListAll(MakeInput(PassPosition::Kind::kBackward)));
}

// Their weights are read in the backward pass, and not for their own gradients.
TEST(PartialPasses, GradientsOfWeightsGatherNothing) {
  ResidencyPlan::Input input = MakeInput(PassPosition::Kind::kWeightGradient);
  input.sharding = config::ShardingOfStage(3, 2);
  for (const Action& action : ListAll(input)) EXPECT_EQ(action.kind, Action::Kind::kReduce);
  input = MakeInput(PassPosition::Kind::kBackward);
  input.sharding = config::ShardingOfStage(3, 2);
  input.gradients_come_later = true;
  for (const Action& action : ListAll(input)) EXPECT_NE(action.kind, Action::Kind::kReduce);
}

}  // namespace
}  // namespace ds::zero
