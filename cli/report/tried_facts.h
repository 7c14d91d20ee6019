#pragma once

// Host facts found by running something: `dsrank facts` for its build, and a test file for offload.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/host_facts.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct ChildOutput {
  int exit_status = 0;  // as in a shell: 128 + n for signal n
  std::string out;
  std::string err;
};

// Runs a program without input until it ends. Returns its output, at most 1 MiB of each stream.
// After `time_limit`, kills the program and returns kDeadlineExceeded.
StatusOr<ChildOutput> RunAndRead(const std::vector<std::string>& argv,
                                 std::chrono::milliseconds time_limit);

// Runs `dsrank facts` and parses its output. Errors are stored in DsrankFacts::problem.
DsrankFacts AskDsrank(const std::filesystem::path& dsrank);

// Parses the output only. Missing fields stay empty; text that is no JSON object sets `problem`.
DsrankFacts ParseDsrankFacts(std::string_view json_text);

// Tests how NVMe offload would use the folder, with an unnamed file.
OffloadFacts TryOffload(const std::filesystem::path& folder);

}  // namespace ds::cli
