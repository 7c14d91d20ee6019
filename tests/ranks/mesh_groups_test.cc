// The communicators of every group of every mesh of up to eight ranks.

#include "runtime/comm/mesh_groups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/rank_harness.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;
using topology::Axis;
using topology::AxisSet;

// Every way to write `ranks` as a product of the remaining axes' degrees.
void ListDegrees(int ranks, std::size_t axis, std::array<int, topology::kAxisCount> so_far,
                 std::vector<topology::Degrees>* all) {
  if (axis + 1 == topology::kAxisCount) {
    so_far[axis] = ranks;
    all->push_back({.pipeline = so_far[0],
                    .replicate = so_far[1],
                    .shard = so_far[2],
                    .sequence = so_far[3],
                    .tensor = so_far[4]});
    return;
  }
  for (int degree = 1; degree <= ranks; ++degree) {
    if (ranks % degree != 0) continue;
    so_far[axis] = degree;
    ListDegrees(ranks / degree, axis + 1, so_far, all);
  }
}

AxisSet SetOf(unsigned bits) {
  AxisSet axes{};
  for (unsigned axis = 0; axis < topology::kAxisCount; ++axis) {
    if ((bits >> axis & 1U) != 0) axes = axes.With(static_cast<Axis>(axis));
  }
  return axes;
}

// A rank adds a bit of its own: the sum tells who was there.
void ExpectEveryGroupSums(const topology::Mesh& mesh, Communicator& world) {
  for (unsigned bits = 1; bits < 1U << topology::kAxisCount; ++bits) {
    Communicator& group = GroupOver(SetOf(bits), "sum", mesh, world);
    std::int64_t expected = 0;
    for (int other = 0; other < world.size(); ++other) {
      bool is_member = true;
      for (unsigned axis = 0; axis < topology::kAxisCount; ++axis) {
        const bool is_equal =
            mesh.CoordinatesOf(other)[axis] == mesh.CoordinatesOf(world.rank())[axis];
        is_member = is_member && (is_equal || (bits >> axis & 1U) != 0);
      }
      if (is_member) expected += 1 << other;
    }
    const at::Tensor sum = at::full({3}, 1 << world.rank(), at::kLong);
    group.AllReduce(sum, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(sum, at::full({3}, expected, at::kLong)));
  }
}

TEST(MeshGroupsTest, EveryGroupOfEveryMeshReducesAmongItsMembersAlone) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    std::vector<topology::Degrees> all;
    ListDegrees(ranks, 0, {}, &all);
    for (const topology::Degrees& degrees : all) {
      const topology::Mesh mesh = *topology::Mesh::Create(degrees, ranks);
      RunRanks(ranks, [&](Communicator& world) { ExpectEveryGroupSums(mesh, world); });
    }
  }
}

TEST(MeshGroupsTest, OneCommunicatorForEachPurpose) {
  const topology::Mesh mesh = *topology::Mesh::Create({.shard = 2, .tensor = 2}, 4);
  RunRanks(4, [&](Communicator& world) {
    const AxisSet shard{Axis::kShard};
    Communicator& gather = GroupOver(shard, "gather", mesh, world);
    EXPECT_EQ(&GroupOver(shard, "gather", mesh, world), &gather);
    EXPECT_NE(&GroupOver(shard, "reduce", mesh, world), &gather);
    EXPECT_NE(&GroupOver({Axis::kTensor}, "gather", mesh, world), &gather);
    EXPECT_EQ(&GroupOver({Axis::kShard, Axis::kTensor}, "gather", mesh, world), &world);
  });
}

}  // namespace
}  // namespace ds::comm
