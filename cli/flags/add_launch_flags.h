#pragma once

// AddLaunchFlags declares the launch flags (launch_flags.h) to a parser: the words, their help and
// what a single value may be.

#include "cli/flags/launch_flags.h"

namespace ds::cli {

class FlagParser;

// Declares the flags, writing into `flags` (which outlives the parse), and those of other
// launchers.
void AddLaunchFlags(FlagParser* parser, LaunchFlags* flags);

}  // namespace ds::cli
