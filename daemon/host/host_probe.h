#pragma once

// ProbeHost gathers in one place what preflight judges about this host, so that the judgement is
// tested without the host.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds::daemon {

struct HostResources {
  std::string host_name;
  std::uint32_t cores = 0;  // this process may use
  std::uint32_t gpus = 0;   // NVIDIA device files
  std::optional<std::uint64_t>
      shared_memory_free;              // of /dev/shm; none when there is no such folder
  std::uint64_t open_files_limit = 0;  // soft limit of RLIMIT_NOFILE
};

HostResources ProbeHost();

// Whether this process may choose memory nodes (set_mempolicy, which containers may forbid).
bool MayChooseMemory();

// Resident bytes of a process; 0 when it has ended.
std::uint64_t ResidentBytes(int pid);

}  // namespace ds::daemon
