#pragma once

// The `bench` job: what `dsrank bench JOB.json` does. Every rank times the collectives; the first
// reports one step for each collective and size:
//
//     {"step":1,"collective":"all_reduce","size_bytes":1024,"elements":256,"element_bytes":4,
//      "seconds":1e-05,"throughput_gbps":1.6,"busbw_gbps":0.8}
//
// seconds: the mean of the trials on the slowest rank.

#include "runtime/comm/rank_identity.h"
#include "runtime/config/comm_bench_job.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// Measures to the end. A failure is reported and ends the process with its status, as RunTrain's.
void RunCommBench(const config::CommBenchJob& job, const comm::RankIdentity& identity,
                  RankReporter& reporter);

}  // namespace ds::rank
