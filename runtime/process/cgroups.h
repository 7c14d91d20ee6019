#pragma once

// Cgroups finds the control groups of this process and reads their memory counters. The host may
// have v1, v2 or both.
//
// Reads files under `root`, which is "/" except in tests. Values that cannot be read are absent,
// never an error.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ds {

// The folders of the groups; empty when the hierarchy does not exist or is not visible here.
struct OwnCgroups {
  std::filesystem::path unified;         // v2
  std::filesystem::path unified_root;    // mount point of v2
  std::filesystem::path memory_v1;       // group of the v1 memory controller
  std::filesystem::path memory_v1_root;  // mount point of the v1 memory controller
};

OwnCgroups FindOwnCgroups(const std::filesystem::path& root = "/");

// Memory counters of a group.
struct GroupMemory {
  std::uint64_t oom_kills = 0;         // processes killed in it and in the groups below
  std::optional<std::uint64_t> limit;  // the group's own or inherited limit; nullopt if unlimited
  std::optional<std::uint64_t> peak;   // highest usage so far
};

// Each returns nullopt when no memory controller covers this process. ReadOomKills reads one small
// file. ReadGroupMemory can be slow: the kernel may add up the statistics of every processor.
std::optional<std::uint64_t> ReadOomKills(const OwnCgroups& cgroups);
std::optional<GroupMemory> ReadGroupMemory(const OwnCgroups& cgroups);

// Returns the bytes that this process's group may still allocate: the minimum over the group and
// its ancestors of limit minus usage. The usage of a group includes the groups below it, and its
// file pages count as free. Returns nullopt when no group is limited.
std::optional<std::uint64_t> ReadAvailableInGroups(const OwnCgroups& cgroups);

}  // namespace ds
