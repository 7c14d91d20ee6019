#pragma once

// RunAndRead runs a program that answers a question about the host, and returns its output.
//
// The program has no input, and a session of its own. It never outlives the call, and neither does
// a process of its group. Thread-safe. Blocks until the answer or the time limit, and then until
// the kernel has ended the program. The answer is the output up to the program's own end.
//
// A process that reaps children which it does not know must leave them alone while
// HasRunningPrograms.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::daemon {

struct ChildCommand {
  std::string executable;                               // a path
  std::vector<std::string> argv;                        // from argv[0] on
  std::optional<std::vector<std::string>> environment;  // "NAME=value"; none: this process's own
  std::string working_directory;                        // "" = this process's own
  // Returns true if standard output holds the complete answer; then nothing else is awaited. Null:
  // both streams are read to their ends, and the program ends.
  std::function<bool(std::string_view)> is_complete;
};

struct ChildOutput {
  int exit_status = 0;  // as in a shell: 128 + n for signal n; meaningless if is_complete was true
  int signal = 0;       // that ended the program; 0 = none; meaningless in the same case
  std::string out;
  std::string err;
};

// Returns at most 1 MiB of each stream. kDeadlineExceeded: the program gave no answer in
// `time_limit`. Other errors: it did not start, or its exit status is unknown.
StatusOr<ChildOutput> RunAndRead(const ChildCommand& command, std::chrono::nanoseconds time_limit);

// Returns the time limit of programs that are asked before `deadline`: less than is left, so that a
// program without an answer is told from a task that hangs.
inline std::chrono::nanoseconds LimitPrograms(std::chrono::steady_clock::time_point deadline) {
  return (deadline - std::chrono::steady_clock::now()) * 3 / 4;
}

// Describes the end of a program that failed: "ended with status 1: no module named encodings",
// with the last line of its standard error, in which a failing program usually gives the reason.
std::string DescribeEnd(const ChildOutput& output);

// Returns whether a call of RunAndRead has a child process, or is about to start one.
bool HasRunningPrograms();

// Kills the programs of all calls that are in progress, for a process that ends without them.
void KillRunningPrograms();

}  // namespace ds::daemon
