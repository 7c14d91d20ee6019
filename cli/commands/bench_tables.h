#pragma once

// The results of `dsrun bench comm`, formatted as ds_bench's tables or as one JSON document. They
// are the steps that rank 0 has reported (runtime/rank/commands.h).
//
// Pure and thread-safe.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/config/comm_bench_job.h"

namespace ds::cli {

struct BenchResults {
  config::CommBenchJob job;
  int world_size = 0;
  std::vector<nlohmann::json> steps;
};

enum class BandwidthUnit { kGigabits, kGigabytes };  // per second

// Returns one table per collective, at most 80 columns wide.
std::string ShowBenchTables(const BenchResults& results, BandwidthUnit unit);
// Returns
// {"world_size":2,"dtype":"float32","warmups":5,"trials":50,"collectives":{"all_reduce":[...]}}
std::string ShowBenchJson(const BenchResults& results);

}  // namespace ds::cli
