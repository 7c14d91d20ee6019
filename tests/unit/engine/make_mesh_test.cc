#include "runtime/engine/make_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::engine {
namespace {

using ::testing::HasSubstr;

config::DsConfig WithZero(const config::ZeroConfig& zero) {
  config::DsConfig config;
  config.zero_optimization = zero;
  return config;
}

TEST(MakeMeshTest, RanksFollowTheAxisOfTheStage) {
  for (const int stage : {0, 1, 2, 3}) {
    const topology::Mesh mesh = MakeMesh({}, WithZero({.stage = stage}), 4).value();
    EXPECT_EQ(mesh.degrees().replicate, stage == 0 ? 4 : 1);
    EXPECT_EQ(mesh.degrees().shard, stage == 0 ? 1 : 4);
    EXPECT_EQ(mesh.CountOver(topology::kDataAxes), 4);
    EXPECT_EQ(mesh.CountOver(topology::kGradientAxes), 4);
  }
}

TEST(MakeMeshTest, GroupsOfMicsAreNeighbours) {
  const topology::Mesh mesh = MakeMesh({}, WithZero({.stage = 3, .mics_shard_size = 2}), 6).value();
  EXPECT_EQ(mesh.GroupOf(2, topology::kShardAxes), (std::vector{2, 3}));
  EXPECT_EQ(mesh.GroupOf(2, topology::kReplicaAxes), (std::vector{0, 2, 4}));
  EXPECT_EQ(mesh.CountOver(topology::kDataAxes), 6);
}

TEST(MakeMeshTest, TheConfigsDegreesLeaveTheRanksThatTheBatchCounts) {
  config::DsConfig config = WithZero({.stage = 1});
  config.parallel = {.pipeline = 2, .sequence = 2, .tensor = 2, .expert = 4};
  for (const int mics : {0, 2, 4}) {
    if (mics > 0) config.zero_optimization.mics_shard_size = mics;
    const topology::Mesh mesh = topology::Mesh::Create(DegreesOf(config, 32), 32).value();
    EXPECT_EQ(mesh.CountOver(topology::kDataAxes), 32 / config.parallel.ranks_of_a_sample());
    EXPECT_EQ(mesh.CountOver(topology::kShardAxes), mics > 0 ? mics : 8);
    config.parallel.expert = 2;
  }
}

// Where ZeRO cuts nothing, experts are cut all the same.
TEST(MakeMeshTest, ExpertsFollowTheShardAxisAtEveryStage) {
  for (const int stage : {0, 1, 3}) {
    config::DsConfig config = WithZero({.stage = stage});
    config.parallel = {.sequence = 2, .expert = 4, .data_before_expert = true};
    const topology::Mesh mesh = MakeMesh({}, config, 8).value();
    EXPECT_EQ(mesh.degrees().shard, 4);
    EXPECT_EQ(mesh.degrees().replicate, 1);
    EXPECT_EQ(mesh.ExpertGroupOf(1), (std::vector{1, 3, 5, 7}));
  }
}

TEST(MakeMeshTest, RefusesUnsupportedOrInvalidMeshes) {
  const auto why = [](const topology::Degrees& degrees, int stage) {
    return MakeMesh(degrees, WithZero({.stage = stage}), 4).status().message();
  };
  EXPECT_EQ(why({.pipeline = 2, .shard = 2}, 1), "pipeline.stages is 1, and the mesh's pipeline 2");
  EXPECT_EQ(why({.shard = 2, .sequence = 2}, 2),
            "sequence_parallel_size is 1, and the mesh's sequence 2");
  EXPECT_EQ(why({.shard = 2, .tensor = 2}, 2),
            "tensor_parallel.autotp_size is 1, and the mesh's tensor 2");
  EXPECT_EQ(why({.shard = 4, .expert = 2}, 2),
            "expert_parallel.autoep_size is 1, and the mesh's expert 2");
  EXPECT_THAT(why({.shard = 4}, 0),
              HasSubstr("ZeRO stage 0 shards nothing: the mesh's shard must be 1"));
  EXPECT_THAT(why({.shard = 2}, 3), HasSubstr("fewer ranks than the 4 of the job"));
}

}  // namespace
}  // namespace ds::engine
