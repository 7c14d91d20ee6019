#pragma once

// FinalStatus computes the exit status of dsrun for --exit_codes (runtime/base/exit_codes.h).
//
// Pure.

#include "cli/flags/launch_flags.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {

// Translates a status of dsrun itself.
int FinalStatus(ExitStatus status, ExitCodes codes);

// Translates the status of a job that ended with `verdict`.
int FinalStatus(const Verdict& verdict, ExitCodes codes);

}  // namespace ds::cli
