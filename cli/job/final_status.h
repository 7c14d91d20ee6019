#pragma once

// FinalStatus is what dsrun ends with, as --exit_codes wants it (runtime/base/exit_codes.h).
//
// Pure.

#include "cli/flags/launch_flags.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {

// Translates a status that is dsrun's own.
int FinalStatus(ExitStatus status, ExitCodes codes);

// Translates that of a job which ended with `verdict`.
int FinalStatus(const Verdict& verdict, ExitCodes codes);

}  // namespace ds::cli
