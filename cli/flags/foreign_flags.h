#pragma once

// Flags of other launchers: deepspeed, torchrun and mpirun. Flags with an equivalent in dsrun are
// mapped to it. Flags that request dsrun's default behaviour are accepted. All others are rejected
// with the dsrun alternative.

#include "cli/flags/launch_flags.h"

namespace ds::cli {

class FlagParser;

// Declares these flags on `parser`. Parsing writes into `flags`, which must outlive the parse.
void AddForeignFlags(FlagParser* parser, LaunchFlags* flags);

}  // namespace ds::cli
