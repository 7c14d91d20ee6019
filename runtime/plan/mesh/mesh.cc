#include "runtime/plan/mesh/mesh.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/divisors.h"

namespace ds::topology {
namespace {

std::size_t IndexOf(Axis axis) { return static_cast<std::size_t>(axis); }

// Returns "pipeline 2 x shard 4", without axes of degree 1.
std::string Describe(const Degrees& degrees) {
  std::string text;
  for (const Axis axis : degrees.order) {
    if (degrees.along(axis) == 1) continue;
    text += (text.empty() ? "" : " x ") + std::string(NameOf(axis)) + " " +
            std::to_string(degrees.along(axis));
  }
  return text.empty() ? "every degree 1" : text;
}

Status CheckDegrees(const Degrees& degrees, int world_size) {
  std::int64_t product = 1;
  AxisSet seen{};
  for (const Axis axis : degrees.order) {
    if (seen.contains(axis)) {
      return InvalidArgumentError("the order of the mesh's axes names '" +
                                  std::string(NameOf(axis)) + "' twice");
    }
    seen = seen.With(axis);
    if (degrees.along(axis) < 1) {
      return InvalidArgumentError("the mesh's degree '" + std::string(NameOf(axis)) + "' is " +
                                  std::to_string(degrees.along(axis)) + ", the least is 1");
    }
    // Capping the product avoids overflow; once too large it stays too large.
    product = std::min<std::int64_t>(product, world_size + std::int64_t{1}) * degrees.along(axis);
  }
  if (product != world_size) {
    return InvalidArgumentError("a mesh of " + Describe(degrees) + " has " +
                                (product > world_size ? "more" : "fewer") + " ranks than the " +
                                std::to_string(world_size) +
                                " of the job: the product of its degrees is the number of ranks");
  }
  const int across = degrees.shard * degrees.sequence;
  if (degrees.expert < 1 || across % degrees.expert != 0) {
    return InvalidArgumentError("expert " + std::to_string(degrees.expert) +
                                " does not divide shard x sequence = " + std::to_string(across) +
                                ": take " + NameNearestDivisors(across, degrees.expert));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Mesh> Mesh::Create(const Degrees& degrees, int world_size) {
  DS_RETURN_IF_ERROR(CheckDegrees(degrees, world_size));
  Mesh mesh;
  mesh.degrees_ = degrees;
  mesh.world_size_ = world_size;
  int stride = 1;
  for (std::size_t i = kAxisCount; i-- > 0;) {
    const Axis axis = degrees.order[i];
    mesh.strides_[IndexOf(axis)] = stride;
    stride *= degrees.along(axis);
  }
  return mesh;
}

int Mesh::CountOver(AxisSet axes) const {
  int count = 1;
  for (const Axis axis : degrees_.order) {
    if (axes.contains(axis)) count *= degrees_.along(axis);
  }
  return count;
}

Coordinates Mesh::CoordinatesOf(int rank) const {
  DS_CHECK(rank >= 0 && rank < world_size_);
  Coordinates coordinates{};
  for (const Axis axis : degrees_.order) {
    coordinates[IndexOf(axis)] = rank / strides_[IndexOf(axis)] % degrees_.along(axis);
  }
  return coordinates;
}

int Mesh::RankAt(const Coordinates& coordinates) const {
  int rank = 0;
  for (const Axis axis : degrees_.order) {
    const int at = coordinates[IndexOf(axis)];
    DS_CHECK(at >= 0 && at < degrees_.along(axis));
    rank += at * strides_[IndexOf(axis)];
  }
  return rank;
}

std::vector<int> Mesh::GroupOf(int rank, AxisSet axes) const {
  Coordinates first = CoordinatesOf(rank);
  for (const Axis axis : degrees_.order) {
    if (axes.contains(axis)) first[IndexOf(axis)] = 0;
  }
  std::vector<int> group{RankAt(first)};
  for (const Axis axis : degrees_.order) {  // outermost first keeps the ranks ascending
    if (!axes.contains(axis)) continue;
    std::vector<int> wider;
    for (const int member : group) {
      for (int i = 0; i < degrees_.along(axis); ++i) {
        wider.push_back(member + i * strides_[IndexOf(axis)]);
      }
    }
    group = std::move(wider);
  }
  return group;
}

Member Mesh::MemberOf(int rank, AxisSet axes) const {
  const Coordinates coordinates = CoordinatesOf(rank);
  Member member;
  for (const Axis axis : degrees_.order) {
    if (!axes.contains(axis)) continue;
    member.index = member.index * degrees_.along(axis) + coordinates[IndexOf(axis)];
    member.count *= degrees_.along(axis);
  }
  return member;
}

std::optional<int> Mesh::Neighbour(int rank, Axis axis, int distance) const {
  Coordinates coordinates = CoordinatesOf(rank);
  int& at = coordinates[IndexOf(axis)];
  const std::int64_t wanted = std::int64_t{at} + distance;
  if (wanted < 0 || wanted >= degrees_.along(axis)) return std::nullopt;
  at = static_cast<int>(wanted);
  return RankAt(coordinates);
}

int Mesh::ExpertPartOf(int rank) const {
  const Member member = MemberOf(rank, kShardAxes);
  if (!degrees_.data_before_expert) return member.index % degrees_.expert;
  return member.index / (member.count / degrees_.expert);
}

std::vector<int> Mesh::ExpertGroupOf(int rank) const {
  const std::vector<int> across = GroupOf(rank, kShardAxes);
  const Member member = MemberOf(rank, kShardAxes);
  const int copies = member.count / degrees_.expert;
  std::vector<int> group;
  for (int part = 0; part < degrees_.expert; ++part) {
    const int member_index = degrees_.data_before_expert
                                 ? part * copies + member.index % copies
                                 : member.index / degrees_.expert * degrees_.expert + part;
    group.push_back(across[static_cast<std::size_t>(member_index)]);
  }
  return group;
}

std::vector<int> Mesh::SameExpertsOf(int rank, AxisSet axes) const {
  std::vector<int> group = GroupOf(rank, axes);
  std::erase_if(group, [&](int other) { return ExpertPartOf(other) != ExpertPartOf(rank); });
  return group;
}

}  // namespace ds::topology
