#include "runtime/engine/make_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::engine {
namespace {

using ::testing::HasSubstr;

TEST(MakeMeshTest, RanksLieAlongTheAxisOfTheStage) {
  for (const int stage : {0, 1, 2, 3}) {
    const topology::Mesh mesh = MakeMesh({}, {.stage = stage}, 4).value();
    EXPECT_EQ(mesh.degrees().replicate, stage == 0 ? 4 : 1);
    EXPECT_EQ(mesh.degrees().shard, stage == 0 ? 1 : 4);
    EXPECT_EQ(mesh.CountOver(topology::kDataAxes), 4);
    EXPECT_EQ(mesh.CountOver(topology::kGradientAxes), 4);
  }
}

TEST(MakeMeshTest, GroupsOfMicsAreNeighbours) {
  const config::ZeroConfig zero{.stage = 3, .mics_shard_size = 2};
  const topology::Mesh mesh = MakeMesh({}, zero, 6).value();
  EXPECT_EQ(mesh.GroupOf(2, topology::kShardAxes), (std::vector{2, 3}));
  EXPECT_EQ(mesh.GroupOf(2, topology::kReplicaAxes), (std::vector{0, 2, 4}));
  EXPECT_EQ(mesh.CountOver(topology::kDataAxes), 6);
}

TEST(MakeMeshTest, WhatIsNotBuiltOrNotMeantIsRefused) {
  const auto why = [](const topology::Degrees& degrees, int stage) {
    return MakeMesh(degrees, {.stage = stage}, 4).status().message();
  };
  EXPECT_THAT(why({.shard = 2, .tensor = 2}, 2), HasSubstr("tensor parallelism is not built"));
  EXPECT_THAT(why({.shard = 4}, 0),
              HasSubstr("ZeRO stage 0 cuts nothing: the mesh's shard must be 1"));
  EXPECT_THAT(why({.shard = 2}, 3), HasSubstr("fewer ranks than the 4 of the job"));
}

}  // namespace
}  // namespace ds::engine
