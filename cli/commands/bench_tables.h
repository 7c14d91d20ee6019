#pragma once

// The results of `dsrun bench comm`, which are the steps that rank 0 has reported
// (runtime/rank/comm_bench_command.h), become ds_bench's tables or one JSON document.
//
// Pure; threads: plain functions.

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

// One table for each collective, at most 80 columns wide.
std::string ShowBenchTables(const BenchResults& results, BandwidthUnit unit);
// {"world_size":2,"dtype":"float32","warmups":5,"trials":50,"collectives":{"all_reduce":[...]}}
std::string ShowBenchJson(const BenchResults& results);

}  // namespace ds::cli
