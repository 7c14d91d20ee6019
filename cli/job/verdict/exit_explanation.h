#pragma once

// ExitExplanation explains the end of a rank by its status, its signal and the evidence from its
// host.
//
// Pure; plain values.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/job/verdict/verdict.h"
#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

struct ExitExplanation {
  Cause cause = Cause::kExitCode;
  std::string what;   // predicate: "was killed by signal 9 (SIGKILL)"; the caller adds the subject
  std::string proof;  // the facts
  std::string hint;   // the remedy; "" = none
};

// Explains the end of a failed rank.
ExitExplanation ExplainExit(const v1::RankExited& exit);

// Collects the evidence for verdict.json.
ExitEvidence MakeExitEvidence(const v1::RankExited& exit);

std::string SignalName(int signal);  // "signal 9 (SIGKILL)"

// PythonError is the exception that ended a Python program, as written by PyTorch's @record to the
// file of TORCHELASTIC_ERROR_FILE.
//
// Pure; thread-safe.

struct PythonError {
  std::string message;                 // its first line: "ValueError: no such column"
  std::vector<std::string> traceback;  // line by line; empty = none
};

// Returns nullopt if `file` has another format.
std::optional<PythonError> ParseErrorFile(std::string_view file);

}  // namespace ds::cli
