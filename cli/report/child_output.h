#pragma once

#include <chrono>
#include <string>
#include <vector>

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

}  // namespace ds::cli
