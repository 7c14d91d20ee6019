#include "runtime/engine/make_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::engine {
namespace {

using ::testing::HasSubstr;

TEST(MakeMeshTest, RanksLieAlongTheAxisOfTheStage) {
  for (const int stage : {0, 1, 2, 3}) {
    const topology::Mesh mesh = MakeMesh({}, stage, 4).value();
    EXPECT_EQ(mesh.degrees().replicate, stage == 0 ? 4 : 1);
    EXPECT_EQ(mesh.degrees().shard, stage == 0 ? 1 : 4);
    EXPECT_EQ(mesh.CountOver(topology::kDataAxes), 4);
    EXPECT_EQ(mesh.CountOver(topology::kGradientAxes), 4);
  }
}

TEST(MakeMeshTest, WhatIsNotBuiltOrNotMeantIsRefused) {
  const auto why = [](const topology::Degrees& degrees, int stage) {
    return MakeMesh(degrees, stage, 4).status().message();
  };
  EXPECT_THAT(why({.shard = 2, .tensor = 2}, 2), HasSubstr("tensor parallelism is not built"));
  EXPECT_THAT(why({.replicate = 2, .shard = 2}, 2), HasSubstr("sharding inside replicas"));
  EXPECT_THAT(why({.shard = 4}, 0),
              HasSubstr("ZeRO stage 0 cuts nothing: the mesh's shard must be 1"));
  EXPECT_THAT(why({.replicate = 4}, 1), HasSubstr("the mesh's replicate must be 1, not 4"));
  EXPECT_THAT(why({.shard = 2}, 3), HasSubstr("fewer ranks than the 4 of the job"));
}

}  // namespace
}  // namespace ds::engine
