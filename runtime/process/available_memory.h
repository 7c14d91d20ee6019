#pragma once

// ReadAvailableMemory returns the memory that child processes can use without evicting other
// processes. It is the kernel's MemAvailable, or less when a limit of this process's control groups
// is lower. File pages that a group has read count as free, because the kernel reclaims them.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ds {

// Reads files under `root`, which is "/" except in tests. Returns nullopt when the kernel reports
// nothing.
std::optional<std::uint64_t> ReadAvailableMemory(const std::filesystem::path& root = "/");

}  // namespace ds
