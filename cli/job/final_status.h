#pragma once

// FinalStatus is what dsrun ends with, as --exit_codes wants it.
//
// Pure.

#include "cli/flags/launch_flags.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {

// With --exit_codes distinct a supervisor can tell dsrun's own statuses from a program's: they are
// 240 more, a stop by the user is 247, and a program whose own status is one of these ends with 240
// (verdict.json's proof has it).
inline constexpr int kDistinctBase = 240;
inline constexpr int kDistinctUserStop = 247;

// Translates a status that is dsrun's own.
int FinalStatus(ExitStatus status, ExitCodes codes);

// Translates that of a job which ended with `verdict`.
int FinalStatus(const Verdict& verdict, ExitCodes codes);

}  // namespace ds::cli
