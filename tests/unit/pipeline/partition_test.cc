#include "runtime/plan/pipeline/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/pipeline/goldens.h"

namespace ds::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(PipelineCut, IsDeepSpeedsForAnyWeights) {
  const auto cases = ReadGolden("cuts");
  ASSERT_THAT(cases, SizeIs(64));
  for (const auto& golden : cases) {
    EXPECT_EQ(PartitionByWeight(golden["weights"], golden["parts"]),
              golden["cut"].get<std::vector<int>>())
        << golden.dump();
  }
}

TEST(PipelineCut, IsDeepSpeedsForEqualNumbers) {
  const auto cases = ReadGolden("uniform");
  ASSERT_THAT(cases, SizeIs(30));
  for (const auto& golden : cases) {
    EXPECT_EQ(PartitionUniformly(golden["count"], golden["parts"]),
              golden["cut"].get<std::vector<int>>())
        << golden.dump();
  }
}

std::vector<WeighedBlock> MakeBlocks() {
  return {{"GPTEmbedding", 100, 0.0},
          {"GPTLayer", 30, 3.0},
          {"GPTLayer", 30, 3.0},
          {"GPTLayer", 30, 3.0},
          {"Head", 10, 10.0}};
}

TEST(PipelineCut, GoesByTheMethodOfTheConfig) {
  const auto split = [](const std::string& method) {
    return PartitionBlocks(method, MakeBlocks(), 2);
  };
  EXPECT_THAT(*split("uniform"), ElementsAre(0, 3, 5));
  EXPECT_THAT(*split("parameters"), ElementsAre(0, 1, 5));
  EXPECT_THAT(*split("best"), ElementsAre(0, 1, 5));
  EXPECT_THAT(*split("profile"), ElementsAre(0, 4, 5));
  EXPECT_THAT(*split("type:gptlayer"), ElementsAre(0, 3, 5)) << "whatever the case";
}

// Held against every cut that there is.
TEST(PipelineCut, ByCostTheCostliestPartIsTheCheapestThatThereIs) {
  const auto cost = [](int part, int first, int end) {
    double sum = 0.0;
    for (int i = first; i < end; ++i) sum += (i * 7 + 3) % 5 + 1;
    return sum * (4 - part);
  };
  const auto costliest = [&](const std::vector<int>& split) {
    double most = 0.0;
    for (int part = 0; part < 3; ++part) {
      const auto at = static_cast<std::size_t>(part);
      most = std::max(most, cost(part, split[at], split[at + 1]));
    }
    return most;
  };
  for (int count = 3; count <= 9; ++count) {
    const std::vector<int> split = PartitionByCost(count, 3, cost);
    ASSERT_EQ(split.size(), 4U);
    EXPECT_EQ(split.back(), count);
    for (int second = 1; second + 1 < count; ++second) {
      for (int third = second + 1; third < count; ++third) {
        EXPECT_LE(costliest(split), costliest({0, second, third, count}));
      }
    }
  }
}

TEST(PipelineCut, RefusesUnsupportedSettings) {
  const auto error = [](const std::string& method, int parts) {
    return PartitionBlocks(method, MakeBlocks(), parts).status().message();
  };
  EXPECT_THAT(error("Profile", 2), HasSubstr("\"Profile\" is no way of cutting a pipeline"));
  EXPECT_THAT(error("type:(", 2), HasSubstr("is no regular expression that is taken"));
  EXPECT_THAT(error(R"(type:(e)\1)", 2), HasSubstr("is no regular expression that is taken"));
  EXPECT_THAT(error("type:Conv", 2), HasSubstr("matches none of the model's blocks"));
  EXPECT_THAT(error("uniform", 6), HasSubstr("5 blocks cannot be partitioned into 6 stages"));
}

// DeepSpeed's examples of pipelines say type:transformer, of Megatron's class.
TEST(PipelineCut, FindsLayersByForeignNames) {
  std::vector<WeighedBlock> blocks{{.name = "DecoderEmbedding", .trained = 100}};
  for (int i = 0; i < 6; ++i) {
    blocks.push_back({.name = "DecoderLayer", .other_name = "ParallelTransformerLayerPipe"});
  }
  blocks.push_back({.name = "LmHead"});
  const std::vector<int> by_own = PartitionBlocks("type:DecoderLayer", blocks, 3).value();
  for (const char* method : {"type:transformer", "type:Transformer", "type:TRANSFORMERLAYER"}) {
    EXPECT_EQ(PartitionBlocks(method, blocks, 3).value(), by_own) << method;
  }
  EXPECT_THAT(PartitionBlocks("type:Conv", blocks, 3).status().message(),
              HasSubstr("their classes are DecoderEmbedding, DecoderLayer (also "
                        "ParallelTransformerLayerPipe) and LmHead"));
}

// None of them uses up the time of the user, or the stack.
TEST(PipelineCut, HostileExpressionsEnd) {
  const auto error = [](const std::string& expression) {
    return PartitionBlocks("type:" + expression, MakeBlocks(), 2).status().message();
  };
  EXPECT_THAT(error("(.*)*(.*)*(.*)*(.*)*x_"), HasSubstr("matches none of the model's blocks"));
  EXPECT_THAT(error("((q?){100}){100}q"), HasSubstr("\"((q?){100}){100}q\" counts with {}"));
  EXPECT_THAT(error(std::string(99, '(') + "xq" + std::string(99, ')')),
              HasSubstr("matches none of the model's blocks"));
  const std::size_t depth = 200000;
  EXPECT_THAT(error(std::string(depth, '(') + "x" + std::string(depth, ')')),
              HasSubstr("has 200 characters at most, and not 400001"));
}

}  // namespace
}  // namespace ds::pipeline
