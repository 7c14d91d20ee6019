#pragma once

// Mesh: the grid of all ranks of a job. A rank has a coordinate along every axis (degrees.h); ranks
// are numbered row by row in the declared order, the last axis fastest.
//
// The group of a rank over a set of axes is the set of ranks that differ from it only in the
// coordinates of these axes, itself included. Groups are lists of ranks in ascending order, so all
// members get the same list. Each rank belongs to exactly one group of a kind.
//
// Pure integers: no communication, no state. Thread-safe.

#include <array>
#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/mesh/degrees.h"

namespace ds::topology {

// A rank's index within a group of `count` ranks.
struct Member {
  int index = 0;
  int count = 1;
};

// Indexed by static_cast<std::size_t>(axis).
using Coordinates = std::array<int, kAxisCount>;

class Mesh {
 public:
  // Makes the mesh of one rank.
  Mesh() = default;
  // Refuses a degree below 1, degrees with a product other than world_size, an order that does not
  // name every axis once, and an `expert` that does not divide shard x sequence.
  static StatusOr<Mesh> Create(const Degrees& degrees, int world_size);

  const Degrees& degrees() const { return degrees_; }
  int world_size() const { return world_size_; }
  // Returns the number of ranks in a group over these axes.
  int CountOver(AxisSet axes) const;

  // Requires 0 <= rank < world_size().
  Coordinates CoordinatesOf(int rank) const;
  // Requires every coordinate to be inside its axis.
  int RankAt(const Coordinates& coordinates) const;

  std::vector<int> GroupOf(int rank, AxisSet axes) const;
  Member MemberOf(int rank, AxisSet axes) const;

  // Returns the rank `distance` further along the axis, or nullopt past either end.
  std::optional<int> Neighbour(int rank, Axis axis, int distance) const;

  // Returns the index of the rank's part of the experts, in [0, expert).
  int ExpertPartOf(int rank) const;
  // Within the rank's group over kShardAxes: the `expert` ranks that together hold all experts, one
  // part each, in the order of the parts.
  std::vector<int> ExpertGroupOf(int rank) const;
  // Returns the ranks of its group over these axes that hold the same experts. Over kShardAxes they
  // shard these experts; over kGradientAxes they sum their gradients.
  std::vector<int> SameExpertsOf(int rank, AxisSet axes) const;

 private:
  Degrees degrees_;
  int world_size_ = 1;
  std::array<int, kAxisCount> strides_{1, 1, 1, 1, 1};  // by axis: distance between neighbours
};

}  // namespace ds::topology
