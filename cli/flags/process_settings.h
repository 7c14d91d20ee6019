#pragma once

// ParseLimit and ParseUmask read the values of --ulimit and --umask.
//
// Pure; safe from any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::cli {

struct ProcessLimit {
  std::string name;        // "nofile"; see runtime/process/resource_limits.h
  std::uint64_t soft = 0;  // kUnlimited = no limit
  std::uint64_t hard = 0;  // at least `soft`
};

// Parses "NAME=SOFT[:HARD]" with numbers in setrlimit's units, or "unlimited". HARD defaults to
// SOFT.
StatusOr<ProcessLimit> ParseLimit(std::string_view word);

// Parses an octal number up to 777, such as "022".
StatusOr<int> ParseUmask(std::string_view word);

}  // namespace ds::cli
