#include "runtime/plan/mesh/degrees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DegreesTest, ShardGetsTheRemainingRanks) {
  const Degrees degrees = ParseDegrees("pipeline=2,tensor=4", 32).value();
  EXPECT_EQ(degrees.pipeline, 2);
  EXPECT_EQ(degrees.tensor, 4);
  EXPECT_EQ(degrees.shard, 4);
  EXPECT_EQ(ParseDegrees("replicate=8,expert=1", 8)->shard, 1);
  EXPECT_EQ(ParseDegrees("shard=2", 8)->shard, 2);
  EXPECT_EQ(ParseDegrees("tensor=2147483647,sequence=2147483647", 8)->shard, 1);
}

TEST(DegreesTest, NamedAxesKeepTheirOrder) {
  EXPECT_THAT(
      ParseDegrees("tensor=2,pipeline=2", 4)->order,
      ElementsAre(Axis::kTensor, Axis::kReplicate, Axis::kShard, Axis::kSequence, Axis::kPipeline));
  EXPECT_EQ(ParseDegrees("expert=2", 4)->order, Degrees{}.order);
}

TEST(DegreesTest, TextsThatAreNoMeshAreRefused) {
  const auto why = [](std::string_view text) { return ParseDegrees(text, 8).status().message(); };
  EXPECT_THAT(why(""), HasSubstr("'' is not a degree of a mesh"));
  EXPECT_THAT(why("shard"), HasSubstr("write AXIS=N"));
  EXPECT_THAT(why("shard=0"), HasSubstr("N of at least 1"));
  EXPECT_THAT(why("shard=2x"), HasSubstr("'shard=2x'"));
  EXPECT_THAT(why("tensro=2"), HasSubstr("no axis 'tensro'; did you mean 'tensor'?"));
  EXPECT_THAT(why("shard=2,shard=2"), HasSubstr("names 'shard' twice"));
}

TEST(DegreesTest, TheSizesOfAModelLimitItsPartition) {
  const config::ModelFacts model{.layers = 4, .experts = 8};
  EXPECT_TRUE(CheckFitsModel({.pipeline = 4, .tensor = 2, .expert = 4}, model).ok());
  EXPECT_TRUE(CheckFitsModel({.pipeline = 64, .tensor = 64}, {}).ok());
  const auto why = [&](const Degrees& degrees) { return CheckFitsModel(degrees, model).message(); };
  EXPECT_THAT(why({.pipeline = 5}), HasSubstr("pipeline 5 asks for more stages"));
  EXPECT_THAT(why({.expert = 3}),
              HasSubstr("expert 3 does not divide the model's 8 experts: take 2 or 4"));
}

}  // namespace
}  // namespace ds::topology
