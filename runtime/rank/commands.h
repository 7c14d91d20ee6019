#pragma once

// The jobs of dsrank, one function each: what main does with JOB.json.

#include <string>

#include "runtime/comm/rank_identity.h"
#include "runtime/config/comm_bench_job.h"
#include "runtime/config/train_job.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// The `train` job: what `dsrank train JOB.json` does, as a list of named phases.

// Trains to the end. A failure is reported and ends the process with its status
// (runtime/base/exit_codes.h), which dsrun passes on; no exception leaves.
void RunTrain(const config::TrainJob& job, const comm::RankIdentity& identity,
              RankReporter& reporter);

// The `bench` job: what `dsrank bench JOB.json` does. Every rank times the collectives; the first
// reports one step for each collective and size:
//
//     {"step":1,"collective":"all_reduce","size_bytes":1024,"elements":256,"element_bytes":4,
//      "seconds":1e-05,"throughput_gbps":1.6,"busbw_gbps":0.8}
//
// seconds: the mean of the trials on the slowest rank.

// Measures to the end. A failure is reported and ends the process with its status, as RunTrain's.
void RunCommBench(const config::CommBenchJob& job, const comm::RankIdentity& identity,
                  RankReporter& reporter);

// `dsrank generate JOB.json`: what `dsrun generate` becomes. No daemon listens: texts go to
// standard output, notices and errors to standard error.

// Reads the job (runtime/config/generate_job.h) and generates all of its texts. Returns the exit
// status: kExitUsage where model, tokenizer or prompts cannot be used, plus the job's offset.
int RunGenerate(const std::string& job_path);

}  // namespace ds::rank
