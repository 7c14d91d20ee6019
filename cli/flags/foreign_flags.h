#pragma once

// Flags of other launchers, as their users type them: those of deepspeed, torchrun and mpirun that
// mean something here are taken as that; those that ask for what happens anyway are accepted; the
// others are refused with dsrun's way to the same end.

#include "cli/flags/launch_flags.h"

namespace ds::cli {

class FlagParser;

// Declares them, writing into `flags` (which outlives the parse).
void AddForeignFlags(FlagParser* parser, LaunchFlags* flags);

}  // namespace ds::cli
