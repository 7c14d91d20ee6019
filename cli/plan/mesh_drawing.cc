#include "cli/plan/mesh_drawing.h"

#include <array>
#include <functional>
#include <string_view>

#include "cli/plan/core_list.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;
using topology::Axis;
using topology::Mesh;
using Groups = std::vector<std::vector<int>>;

constexpr std::size_t kMostGroupsInALine = 16;

struct Kind {
  std::string_view name;
  std::string_view what;  // its ranks do
  std::function<std::vector<int>(const Mesh&, int rank)> group_of;
};

std::function<std::vector<int>(const Mesh&, int)> Over(topology::AxisSet axes) {
  return [axes](const Mesh& mesh, int rank) { return mesh.GroupOf(rank, axes); };
}

const std::array<Kind, 9>& Kinds() {
  static const std::array<Kind, 9> kinds{{
      {"pipeline", "have the stages of one model, first to last", Over({Axis::kPipeline})},
      {"data", "have samples of their own", Over(topology::kDataAxes)},
      {"gradients", "add up their gradients", Over(topology::kGradientAxes)},
      {"shard", "cut dense parameters among them", Over(topology::kShardAxes)},
      {"replicate", "have equal shards", Over(topology::kReplicaAxes)},
      {"sequence", "have parts of the same samples", Over({Axis::kSequence})},
      {"tensor", "have parts of every matrix", Over({Axis::kTensor})},
      {"experts", "have all experts together", std::mem_fn(&Mesh::ExpertGroupOf)},
      {"expert_shard", "cut the same experts among them",
       [](const Mesh& mesh, int rank) { return mesh.SameExpertsOf(rank, topology::kShardAxes); }},
  }};
  return kinds;
}

// Each once, by its first rank.
Groups ListGroups(const Mesh& mesh, const Kind& kind) {
  Groups groups;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    std::vector<int> group = kind.group_of(mesh, rank);
    if (group.front() == rank) groups.push_back(std::move(group));
  }
  return groups;
}

// Without experts their groups say nothing.
bool IsOfUse(const Mesh& mesh, const Kind& kind) {
  return mesh.degrees().expert > 1 || !kind.name.starts_with("expert");
}

std::string Line(const Kind& kind, const Groups& groups) {
  std::string line = "  " + std::string(kind.name) + " (" + std::string(kind.what) + "):";
  for (std::size_t i = 0; i < groups.size() && i < kMostGroupsInALine; ++i) {
    line += (i == 0 ? " " : " | ") + FormatNumberList(groups[i]);
  }
  if (groups.size() > kMostGroupsInALine) {
    line += " and " + std::to_string(groups.size() - kMostGroupsInALine) + " more";
  }
  return line + "\n";
}

}  // namespace

std::string MeshDrawing::DescribeRank(int rank) const {
  const topology::Coordinates at = mesh_.CoordinatesOf(rank);
  std::string text;
  for (const Axis axis : mesh_.degrees().order) {
    if (mesh_.degrees().along(axis) == 1) continue;
    text += (text.empty() ? "" : "  ") + std::string(NameOf(axis)) + " " +
            std::to_string(at[static_cast<std::size_t>(axis)]);
  }
  return text;
}

Json MeshDrawing::CoordinatesJson(int rank) const {
  const topology::Coordinates at = mesh_.CoordinatesOf(rank);
  Json json = Json::object();
  for (const Axis axis : mesh_.degrees().order) {
    json[std::string(NameOf(axis))] = at[static_cast<std::size_t>(axis)];
  }
  return json;
}

std::string MeshDrawing::DrawGroups() const {
  std::string text = "mesh, outermost first:";
  for (const Axis axis : mesh_.degrees().order) {
    text += " " + std::string(NameOf(axis)) + " " + std::to_string(mesh_.degrees().along(axis));
  }
  text += "; expert " + std::to_string(mesh_.degrees().expert) + "\n";
  for (const Kind& kind : Kinds()) {
    const Groups groups = ListGroups(mesh_, kind);
    if (groups.front().size() > 1 && IsOfUse(mesh_, kind)) text += Line(kind, groups);
  }
  return text;
}

Json MeshDrawing::ToJson() const {
  Json order = Json::array(), degrees = Json::object(), groups = Json::object();
  for (const Axis axis : mesh_.degrees().order) {
    order.push_back(NameOf(axis));
    degrees[std::string(NameOf(axis))] = mesh_.degrees().along(axis);
  }
  degrees["expert"] = mesh_.degrees().expert;
  for (const Kind& kind : Kinds()) {
    if (IsOfUse(mesh_, kind)) groups[std::string(kind.name)] = ListGroups(mesh_, kind);
  }
  return {{"order", order}, {"degrees", degrees}, {"groups", groups}};
}

}  // namespace ds::cli
