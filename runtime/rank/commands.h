#pragma once

// The jobs of dsrank, one function each; main calls them with JOB.json.

#include <string>

#include "runtime/comm/rank_identity.h"
#include "runtime/config/comm_bench_job.h"
#include "runtime/config/train_job.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// The `train` job (`dsrank train JOB.json`), as a list of named phases.

// Trains to the end. A failure is reported and ends the process with its exit status
// (runtime/base/exit_codes.h), which dsrun passes on. Throws no exception.
void RunTrain(const config::TrainJob& job, const comm::RankIdentity& identity,
              RankReporter& reporter);

// The `bench` job (`dsrank bench JOB.json`). Every rank times the collectives; rank 0 reports one
// step for each collective and size:
//
//     {"step":1,"collective":"all_reduce","size_bytes":1024,"elements":256,"element_bytes":4,
//      "seconds":1e-05,"throughput_gbps":1.6,"busbw_gbps":0.8}
//
// seconds: the mean of the trials on the slowest rank.

// Measures to the end. A failure is reported and ends the process with its exit status, as in
// RunTrain.
void RunCommBench(const config::CommBenchJob& job, const comm::RankIdentity& identity,
                  RankReporter& reporter);

// The `generate` job (`dsrank generate JOB.json`, which `dsrun generate` runs). No daemon is
// connected: texts go to standard output, notices and errors to standard error.

// Reads the job (runtime/config/generate_job.h) and generates all its texts. Returns the exit
// status. A failure returns the job's offset plus kExitUsage if model, tokenizer or prompts are
// unusable, else kExitFailure.
int RunGenerate(const std::string& job_path);

}  // namespace ds::rank
