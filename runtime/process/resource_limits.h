#pragma once

// Resource limits of processes (setrlimit), by the names that ulimit and docker use.
//
// Pure; thread-safe.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// Returns the RLIMIT_ number of "nofile", "memlock", "core", ...; nullopt for any other name.
std::optional<int> FindResourceNumber(std::string_view name);

// Returns all names, for messages.
std::vector<std::string> ListResourceNames();

}  // namespace ds
