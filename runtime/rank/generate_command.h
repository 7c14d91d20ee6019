#pragma once

// `dsrank generate JOB.json`: what `dsrun generate` becomes. No daemon listens: texts go to
// standard output, notices and errors to standard error.

#include <string>

namespace ds::rank {

// Reads the job (runtime/config/generate_job.h) and generates all of its texts. Returns the exit
// status: kExitUsage where model, tokenizer or prompts cannot be used, plus the job's offset.
int RunGenerate(const std::string& job_path);

}  // namespace ds::rank
