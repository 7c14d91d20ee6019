#pragma once

// Resource limits of processes (setrlimit) by the names that ulimit and docker use.
//
// Pure; safe from any thread.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The RLIMIT_ number of "nofile", "memlock", "core", ...; none for any other name.
std::optional<int> FindResourceNumber(std::string_view name);

// All of them, for messages.
std::vector<std::string> ListResourceNames();

}  // namespace ds
