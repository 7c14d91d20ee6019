#include "cli/train/split_groups.h"

#include <algorithm>
#include <optional>

#include "runtime/topology/mesh.h"

namespace ds::cli {
namespace {

// By rank, its place in WorldPlan::hosts.
std::vector<std::size_t> HostsOfRanks(const WorldPlan& world) {
  std::vector<std::size_t> hosts;
  for (std::size_t host = 0; host < world.hosts.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(world.hosts[host].rank_count()), host);
  }
  return hosts;
}

// The largest number of neighbours, at most `wanted`, that no host's end separates.
int LargestWhole(const WorldPlan& world, int wanted) {
  for (int count = wanted; count > 1; --count) {
    bool divides = wanted % count == 0;
    for (const JobHost& host : world.hosts) divides = divides && host.rank_count() % count == 0;
    if (divides) return count;
  }
  return 1;
}

// `inside`: ranks that are nearer neighbours than those along the axis.
std::optional<std::string> DescribeSplit(const WorldPlan& world, const topology::Mesh& mesh,
                                         topology::Axis axis, int inside) {
  const std::vector<std::size_t> hosts = HostsOfRanks(world);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> group = mesh.GroupOf(rank, {axis});
    const std::size_t first = hosts[static_cast<std::size_t>(group.front())];
    const std::size_t last = hosts[static_cast<std::size_t>(group.back())];
    if (first == last) continue;
    const std::string name(topology::NameOf(axis));
    const int degree = mesh.degrees().along(axis);
    const int whole = LargestWhole(world, degree * inside) / inside;
    return name + " ranks " + std::to_string(group.front()) + " to " +
           std::to_string(group.back()) + " lie on " + world.hosts[first].host + " and " +
           world.hosts[last].host +
           " and talk in every layer, over the network between the two: " + name + " " +
           std::to_string(std::max(whole, 1)) + " in place of " + std::to_string(degree) +
           " keeps them on one host" +
           (axis == topology::Axis::kTensor ? "; stages (--pp) may lie on several" : "");
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> DescribeSplitGroups(const WorldPlan& world,
                                             const config::ParallelConfig& degrees) {
  const int ranks = world.world_size();
  const auto mesh =
      topology::Mesh::Create({.pipeline = degrees.pipeline,
                              .shard = static_cast<int>(ranks / degrees.ranks_of_a_sample()),
                              .sequence = degrees.sequence,
                              .tensor = degrees.tensor},
                             ranks);
  std::vector<std::string> sentences;
  if (!mesh.ok()) return sentences;
  const auto add = [&](topology::Axis axis, int inside) {
    if (const auto said = DescribeSplit(world, *mesh, axis, inside)) sentences.push_back(*said);
  };
  add(topology::Axis::kTensor, 1);
  add(topology::Axis::kSequence, degrees.tensor);
  return sentences;
}

}  // namespace ds::cli
