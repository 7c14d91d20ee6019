#pragma once

// Mesh: the grid of all ranks of a job. A rank has a coordinate along every axis (degrees.h); ranks
// are numbered row by row in the declared order, the last axis fastest.
//
// The group of a rank over some axes are the ranks that differ from it in nothing but these axes'
// coordinates, itself included. Groups are lists of ranks in ascending order, so every member gets
// the same one, and each rank is in exactly one group of a kind.
//
// Pure integers: no communication, no state. Safe from any thread.

#include <array>
#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/mesh/degrees.h"

namespace ds::topology {

// One of `count` ranks, by its place among them.
struct Member {
  int index = 0;
  int count = 1;
};

// By axis (static_cast<std::size_t>(axis)).
using Coordinates = std::array<int, kAxisCount>;

class Mesh {
 public:
  // Makes the mesh of one rank.
  Mesh() = default;
  // Refuses a degree below 1, degrees whose product is not world_size, an order that does not name
  // every axis once, and an `expert` that does not divide shard x sequence.
  static StatusOr<Mesh> Create(const Degrees& degrees, int world_size);

  const Degrees& degrees() const { return degrees_; }
  int world_size() const { return world_size_; }
  // The ranks of a group over these axes.
  int CountOver(AxisSet axes) const;

  // Requires 0 <= rank < world_size().
  Coordinates CoordinatesOf(int rank) const;
  // Requires every coordinate to be inside its axis.
  int RankAt(const Coordinates& coordinates) const;

  std::vector<int> GroupOf(int rank, AxisSet axes) const;
  Member MemberOf(int rank, AxisSet axes) const;

  // The rank that is `distance` further along the axis; nothing past either end.
  std::optional<int> Neighbour(int rank, Axis axis, int distance) const;

  // Tells which of the `expert` parts of all experts the rank holds.
  int ExpertPartOf(int rank) const;
  // Within the rank's group over kShardAxes: the `expert` ranks that hold all experts together, one
  // part each, in the parts' order.
  std::vector<int> ExpertGroupOf(int rank) const;
  // The ranks of its group over these axes that hold the same experts. Over kShardAxes these are
  // cut among them; over kGradientAxes their gradients add up.
  std::vector<int> SameExpertsOf(int rank, AxisSet axes) const;

 private:
  Degrees degrees_;
  int world_size_ = 1;
  std::array<int, kAxisCount> strides_{1, 1, 1, 1, 1};  // by axis: between neighbours
};

}  // namespace ds::topology
