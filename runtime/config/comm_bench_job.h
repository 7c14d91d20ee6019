#pragma once

// CommBenchJob: everything a rank needs for `dsrun bench comm`, as dsrun hands it over in
// bench.json. Who this rank is comes from the environment.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

// The benchmarks in the order in which they run; pt2pt goes from rank 0 to the last one.
inline constexpr std::array<std::string_view, 6> kBenchCollectives = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "pt2pt"};

struct CommBenchJob {
  std::vector<std::string> collectives;  // of kBenchCollectives
  // Bytes of one rank's input: the first size, doubled up to the last.
  std::int64_t min_size = 1024;
  std::int64_t max_size = 64 << 20;
  std::int64_t warmups = 5;
  std::int64_t trials = 50;
  std::string dtype = "float32";  // or float16, bfloat16
  std::string device = "auto";    // auto, cpu or cuda
  bool encrypt = false;           // what ranks of several hosts send each other

  friend bool operator==(const CommBenchJob&, const CommBenchJob&) = default;
};

// Requires: max_size is at least min_size.
std::vector<std::int64_t> ListBenchSizes(const CommBenchJob& job);

std::string ToJson(const CommBenchJob& job);
// The inverse; every field is needed, of the right type and in range.
StatusOr<CommBenchJob> CommBenchJobFromJson(std::string_view json);

}  // namespace ds::config
