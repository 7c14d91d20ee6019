#pragma once

// The jobs of dsrank, one function each. main.cc calls them for a command line `dsrank JOB_KIND
// JOB.json`.

#include <string>

#include "runtime/comm/rank_identity.h"
#include "runtime/config/comm_bench_job.h"
#include "runtime/config/train_job.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// The `train` job (`dsrank train JOB.json`). Runs its phases in order ("check the job", "connect
// the ranks", ..., "write the model") and reports the name of each before it begins. A failure is
// reported and ends the process with the exit status of its cause (runtime/base/exit_codes.h),
// which dsrun passes on. Throws no exception.
void RunTrain(const config::TrainJob& job, const comm::RankIdentity& identity,
              RankReporter& reporter);

// The `bench` job (`dsrank bench JOB.json`). Every rank times the collectives; rank 0 reports one
// step for each collective and size:
//
//     {"step":1,"collective":"all_reduce","size_bytes":1024,"elements":256,"element_bytes":4,
//      "seconds":1e-05,"throughput_gbps":1.6,"busbw_gbps":0.8}
//
// seconds: the mean of the trials on the slowest rank. throughput_gbps, busbw_gbps: Gbit/s, as
// defined in comm/bandwidth.h; the example has two ranks. A failure is handled as in RunTrain.
void RunCommBench(const config::CommBenchJob& job, const comm::RankIdentity& identity,
                  RankReporter& reporter);

// The `generate` job (`dsrank generate JOB.json`, which `dsrun generate` runs). Reads the job
// (runtime/config/generate_job.h) and generates all its texts. No daemon is connected: texts go to
// standard output, notices and errors to standard error.
//
// Returns the exit status: kExitOk, kExitUsage if the job, model, tokenizer or prompts are
// unusable, otherwise kExitFailure. If the job can be read, its status_offset (--exit_codes
// distinct) is added to the status of a failure.
int RunGenerate(const std::string& job_path);

}  // namespace ds::rank
