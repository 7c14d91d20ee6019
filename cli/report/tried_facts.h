#pragma once

// Some facts of a host show only when something is tried: dsrank, which says what it was built
// with, and a file for what is offloaded.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/host_facts.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct ChildOutput {
  int exit_status = 0;  // as a shell says it: 128 + n for signal n
  std::string out;
  std::string err;
};

// Runs a program to its end and returns what it printed, at most 1 MiB of each. The program gets no
// input. kDeadlineExceeded after `time_limit`; the program is then killed.
StatusOr<ChildOutput> RunAndRead(const std::vector<std::string>& argv,
                                 std::chrono::milliseconds time_limit);

// Starts `dsrank facts` and reads its answer. What goes wrong is DsrankFacts::problem.
DsrankFacts AskDsrank(const std::filesystem::path& dsrank);

// The answer alone. A missing field stays empty; text that is no JSON object is a problem.
DsrankFacts ParseDsrankFacts(std::string_view json_text);

// Finds out how offload to NVMe would use the folder, in a file without a name.
OffloadFacts TryOffload(const std::filesystem::path& folder);

}  // namespace ds::cli
