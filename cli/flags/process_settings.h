#pragma once

// ParseLimit, ParseUmask and ParseFileSize read the values of --ulimit, --umask and --log_max_size.
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

// Parses a number of bytes from 1 on, with K, M, G or T for powers of 1024: "100M".
StatusOr<std::uint64_t> ParseFileSize(std::string_view word);

}  // namespace ds::cli
