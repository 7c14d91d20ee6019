#pragma once

// Names of jobs: readable, sorted by time, unique on this machine.

#include <cstdint>
#include <string>
#include <string_view>

namespace ds::cli {

// "train-20261121-071203-4f2a": what it runs, when (local time), and something random. `name` is
// cut down to letters, digits, '-', '_' and '.'.
std::string MakeJobId(std::string_view name, std::int64_t unix_nanos);

}  // namespace ds::cli
