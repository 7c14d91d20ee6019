#pragma once

// Cgroups: the control groups this process is in, whichever of v1, v2 or both the host has, and
// what they know of memory.
//
// Reads files under `root` ("/" but for tests). What cannot be read is absent, never an error.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ds {

// Folders; empty where there is no such hierarchy or it is not to be seen from here.
struct OwnCgroups {
  std::filesystem::path unified;         // v2
  std::filesystem::path unified_root;    // where v2 is mounted
  std::filesystem::path memory_v1;       // of the memory controller of v1
  std::filesystem::path memory_v1_root;  // where that is mounted
};

OwnCgroups FindOwnCgroups(const std::filesystem::path& root = "/");

// The kernel's counts for a group.
struct GroupMemory {
  std::uint64_t oom_kills = 0;         // of its processes and those below
  std::optional<std::uint64_t> limit;  // of it or of one above it; none = unlimited
  std::optional<std::uint64_t> peak;   // the most it ever used
};

// None where no memory controller watches this process. The count alone costs one small file, where
// the rest can make the kernel add up the statistics of every processor.
std::optional<std::uint64_t> ReadOomKills(const OwnCgroups& cgroups);
std::optional<GroupMemory> ReadGroupMemory(const OwnCgroups& cgroups);

// Counts the bytes that the group and those above it may still take, by the one that leaves least:
// the limit of each is held against what it has used itself, with the groups below it. What they
// hold of files counts as free. None where none of them is limited.
std::optional<std::uint64_t> ReadRoomInGroups(const OwnCgroups& cgroups);

}  // namespace ds
