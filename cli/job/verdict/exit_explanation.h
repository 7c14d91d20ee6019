#pragma once

// ExitExplanation: what the end of a rank means, told from its status, its signal and the evidence
// of its host.
//
// Pure. Threads: plain values.

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
  std::string what;   // "was killed by signal 9 (SIGKILL)"; who is said by the caller
  std::string proof;  // the facts
  std::string hint;   // what to do; "" when there is nothing to say
};

// Explains the end of a rank that ended badly.
ExitExplanation ExplainExit(const v1::RankExited& exit);

// Collects the numbers behind it, for verdict.json.
ExitEvidence MakeExitEvidence(const v1::RankExited& exit);

std::string SignalName(int signal);  // "signal 9 (SIGKILL)"

// PythonError: the exception that ended a Python program, as PyTorch's @record writes it into the
// file of TORCHELASTIC_ERROR_FILE.
//
// Pure; safe from any thread.

struct PythonError {
  std::string message;                 // its first line: "ValueError: no such column"
  std::vector<std::string> traceback;  // line by line; empty when there is none
};

// None when `file` holds no such thing.
std::optional<PythonError> ParseErrorFile(std::string_view file);

}  // namespace ds::cli
