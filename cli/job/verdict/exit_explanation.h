#pragma once

// ExitExplanation: what the end of a rank means, told from its status, its signal and the evidence
// of its host.
//
// Pure. Threads: plain values.

#include <string>

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

}  // namespace ds::cli
