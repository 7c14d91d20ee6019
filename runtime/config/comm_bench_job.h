#pragma once

// CommBenchJob holds everything that a rank needs for `dsrun bench comm`. dsrun writes it to
// bench.json. A rank learns its own rank from the environment.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

// The benchmarks in the order in which they run. pt2pt runs from rank 0 to the last rank.
inline constexpr std::array<std::string_view, 6> kBenchCollectives = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "pt2pt"};

struct CommBenchJob {
  std::vector<std::string> collectives;  // of kBenchCollectives
  // Bytes of one rank's input, from min_size on, doubled up to max_size.
  std::int64_t min_size = 1024;
  std::int64_t max_size = 64 << 20;
  std::int64_t warmups = 5;
  std::int64_t trials = 50;
  std::string dtype = "float32";  // or float16, bfloat16
  std::string device = "auto";    // auto, cpu or cuda
  bool encrypt = false;           // encrypts traffic between hosts

  friend bool operator==(const CommBenchJob&, const CommBenchJob&) = default;
};

// Returns the sizes to run, ascending. Requires: max_size is at least min_size.
std::vector<std::int64_t> ListBenchSizes(const CommBenchJob& job);

std::string ToJson(const CommBenchJob& job);
// Parses ToJson's output. Every field is required, of the right type and in range.
StatusOr<CommBenchJob> CommBenchJobFromJson(std::string_view json);

}  // namespace ds::config
