#pragma once

// `dsrun bench` has these parts: what it shows of ranks that have timed their collectives, and
// `bench io`.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands/command_table.h"
#include "runtime/config/comm_bench_job.h"

namespace ds::cli {

// dsrun bench io PATH: how fast this host's drives take what is offloaded, as ds_io and
// ds_nvme_tune find out.

// Runs `bench io`, whose first argument is "io".
StatusOr<int> BenchIoCommand(const Invocation& invocation);

// The results of `dsrun bench comm`, which are the steps that rank 0 has reported
// (runtime/rank/commands.h), become ds_bench's tables or one JSON document.
//
// Pure; threads: plain functions.

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
