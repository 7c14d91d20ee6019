#pragma once

// ReadAvailableMemory: how much memory processes that this one starts can have without others being
// pushed out: what the kernel calls available, or less, as far as the limits of the control groups
// of this process go. Pages of files that a group has read count as free, as the kernel takes them
// back.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ds {

// Reads files under `root` ("/" but for tests). None where the kernel does not say.
std::optional<std::uint64_t> ReadAvailableMemory(const std::filesystem::path& root = "/");

}  // namespace ds
