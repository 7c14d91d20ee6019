// The mesh against brute force: every factorisation of up to 64 ranks.

#include "runtime/plan/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace ds::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Axis kAxes[] = {Axis::kPipeline, Axis::kReplicate, Axis::kShard, Axis::kSequence,
                          Axis::kTensor};

using Order = std::array<Axis, kAxisCount>;

// Calls `use` with every way to write `world` as a product of the five degrees.
void ForEachFactorisation(int world, const std::function<void(Degrees)>& use) {
  for (int a = 1; a <= world; ++a) {
    if (world % a != 0) continue;
    for (int b = 1; b <= world / a; ++b) {
      if (world / a % b != 0) continue;
      for (int c = 1; c <= world / a / b; ++c) {
        if (world / a / b % c != 0) continue;
        for (int d = 1; d <= world / a / b / c; ++d) {
          if (world / a / b / c % d != 0) continue;
          use({.pipeline = a,
               .replicate = b,
               .shard = c,
               .sequence = d,
               .tensor = world / a / b / c / d});
        }
      }
    }
  }
}

// Counts through the grid, the last axis of the order fastest.
std::vector<Coordinates> CountThrough(const Degrees& degrees, int world) {
  std::vector<Coordinates> grid;
  Coordinates at{};
  for (int rank = 0; rank < world; ++rank) {
    grid.push_back(at);
    for (auto axis = degrees.order.rbegin(); axis != degrees.order.rend(); ++axis) {
      int& digit = at[static_cast<std::size_t>(*axis)];
      if (++digit < degrees.along(*axis)) break;
      digit = 0;
    }
  }
  return grid;
}

std::vector<int> FindGroup(const std::vector<Coordinates>& grid, int rank, AxisSet axes) {
  std::vector<int> group;
  for (int other = 0; other < static_cast<int>(grid.size()); ++other) {
    const bool equal = std::all_of(std::begin(kAxes), std::end(kAxes), [&](Axis axis) {
      const auto i = static_cast<std::size_t>(axis);
      return axes.contains(axis) || grid[other][i] == grid[rank][i];
    });
    if (equal) group.push_back(other);
  }
  return group;
}

AxisSet SetOf(unsigned bits) {
  AxisSet axes{};
  for (const Axis axis : kAxes) {
    if ((bits >> static_cast<unsigned>(axis) & 1U) != 0) axes = axes.With(axis);
  }
  return axes;
}

void ExpectAsCounted(const Mesh& mesh, const std::vector<unsigned>& sets) {
  const std::vector<Coordinates> grid = CountThrough(mesh.degrees(), mesh.world_size());
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    ASSERT_EQ(mesh.CoordinatesOf(rank), grid[rank]);
    ASSERT_EQ(mesh.RankAt(grid[rank]), rank);
    for (const unsigned bits : sets) {
      const std::vector<int> expected = FindGroup(grid, rank, SetOf(bits));
      ASSERT_EQ(mesh.GroupOf(rank, SetOf(bits)), expected);
      const Member member = mesh.MemberOf(rank, SetOf(bits));
      ASSERT_EQ(member.count, static_cast<int>(expected.size()));
      ASSERT_EQ(expected[member.index], rank);
      ASSERT_EQ(mesh.CountOver(SetOf(bits)), member.count);
    }
    for (const Axis axis : kAxes) {
      const std::vector<int> line = FindGroup(grid, rank, {axis});
      const auto member_index = std::find(line.begin(), line.end(), rank) - line.begin();
      for (int distance = -2; distance <= 2; ++distance) {
        const auto wanted = member_index + distance;
        const auto neighbour = mesh.Neighbour(rank, axis, distance);
        if (wanted < 0 || wanted >= static_cast<std::ptrdiff_t>(line.size())) {
          ASSERT_EQ(neighbour, std::nullopt);
        } else {
          ASSERT_EQ(neighbour, line[wanted]);
        }
      }
    }
  }
}

TEST(MeshTest, EveryFactorisationOfUpTo64RanksIsAsCounted) {
  int meshes = 0;
  for (int world = 1; world <= 64; ++world) {
    ForEachFactorisation(world, [&](Degrees degrees) {
      // Another order and other sets each time; all of them come often.
      Order& order = degrees.order;
      for (int i = 0; i < meshes % 120; ++i) std::next_permutation(order.begin(), order.end());
      const auto bits = static_cast<unsigned>(meshes * 7 % 32);
      const auto mesh = Mesh::Create(degrees, world);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      ExpectAsCounted(*mesh, {bits, 31U - bits});
      ++meshes;
    });
  }
  EXPECT_GT(meshes, 1000);
}

TEST(MeshTest, EveryOrderAndSetOfASmallMeshIsAsCounted) {
  std::vector<unsigned> sets(32);
  std::iota(sets.begin(), sets.end(), 0U);
  Degrees degrees{.pipeline = 2, .replicate = 3, .shard = 2, .sequence = 1, .tensor = 2};
  do ExpectAsCounted(Mesh::Create(degrees, 24).value(), sets);
  while (std::next_permutation(degrees.order.begin(), degrees.order.end()));
}

// Two groups of a rank, of which one has the same experts and one all of them.
void ExpectExpertsAreHeld(const Mesh& mesh, int rank) {
  const std::vector<int> dense = mesh.GroupOf(rank, kShardAxes);
  const std::vector<int> all_experts = mesh.ExpertGroupOf(rank);
  const std::vector<int> same_experts = mesh.SameExpertsOf(rank, kShardAxes);
  EXPECT_EQ(all_experts.size(), static_cast<std::size_t>(mesh.degrees().expert));
  EXPECT_EQ(all_experts.size() * same_experts.size(), dense.size());
  EXPECT_EQ(all_experts[static_cast<std::size_t>(mesh.ExpertPartOf(rank))], rank);
  EXPECT_TRUE(std::is_sorted(all_experts.begin(), all_experts.end()));
  for (const int other : all_experts) EXPECT_EQ(mesh.ExpertGroupOf(other), all_experts);
  for (const int other : same_experts) {
    EXPECT_EQ(mesh.SameExpertsOf(other, kShardAxes), same_experts);
    EXPECT_EQ(mesh.ExpertPartOf(other), mesh.ExpertPartOf(rank));
    EXPECT_TRUE(std::binary_search(dense.begin(), dense.end(), other));
  }
}

TEST(MeshTest, GroupsOfExpertsDivideTheRanksThatShardDenseParameters) {
  for (const bool data_before_expert : {false, true}) {
    for (const int expert : {1, 2, 4, 8}) {
      Degrees degrees{.pipeline = 2, .shard = 4, .sequence = 2, .tensor = 2, .expert = expert};
      degrees.data_before_expert = data_before_expert;
      const Mesh mesh = Mesh::Create(degrees, 32).value();
      for (int rank = 0; rank < 32; ++rank) ExpectExpertsAreHeld(mesh, rank);
    }
  }
}

TEST(MeshTest, ExpertsOfNeighboursDiffer) {
  const Mesh mesh = Mesh::Create({.shard = 8, .expert = 4}, 8).value();
  EXPECT_THAT(mesh.ExpertGroupOf(5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.SameExpertsOf(5, kShardAxes), ElementsAre(1, 5));
}

TEST(MeshTest, ExpertsOfNeighboursAreTheSameInTheOtherOrder) {
  const Mesh mesh = Mesh::Create({.shard = 8, .expert = 4, .data_before_expert = true}, 8).value();
  EXPECT_THAT(mesh.ExpertGroupOf(5), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(mesh.SameExpertsOf(5, kShardAxes), ElementsAre(4, 5));
}

// DeepSpeed's example of 16 ranks, 2 of which are tensor ranks of each other.
TEST(MeshTest, GroupsOfExpertsAreTheReferences) {
  const Mesh mesh = Mesh::Create({.shard = 8, .tensor = 2, .expert = 4}, 16).value();
  EXPECT_THAT(mesh.ExpertGroupOf(0), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(mesh.ExpertGroupOf(11), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(mesh.SameExpertsOf(4, kShardAxes), ElementsAre(4, 12));
  EXPECT_THAT(mesh.SameExpertsOf(15, kShardAxes), ElementsAre(7, 15));
}

TEST(MeshTest, CopiesHoldTheSameExperts) {
  const Mesh mesh = Mesh::Create({.replicate = 2, .shard = 4, .expert = 2}, 8).value();
  EXPECT_THAT(mesh.SameExpertsOf(3, kGradientAxes), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(mesh.SameExpertsOf(3, kReplicaAxes), ElementsAre(3, 7));
}

TEST(MeshTest, WrongDegreesAreRefused) {
  const auto why = [](const Degrees& degrees, int world) {
    return Mesh::Create(degrees, world).status().message();
  };
  EXPECT_THAT(why({.shard = 2, .tensor = 2}, 8),
              HasSubstr("a mesh of shard 2 x tensor 2 has fewer ranks than the 8 of the job"));
  EXPECT_THAT(why({.shard = 1 << 30, .sequence = 1 << 30, .tensor = 1 << 30}, 8),
              HasSubstr("has more ranks than the 8"));
  EXPECT_THAT(why({.shard = 0}, 1), HasSubstr("'shard' is 0, the least is 1"));
  EXPECT_THAT(why({.shard = 4, .tensor = 2, .expert = 3}, 8),
              HasSubstr("expert 3 does not divide shard x sequence = 4: take 2 or 4"));
  Degrees twice;
  twice.order[0] = Axis::kTensor;
  EXPECT_THAT(why(twice, 1), HasSubstr("names 'tensor' twice"));
}

}  // namespace
}  // namespace ds::topology
