#pragma once

#include "cli/commands/command_table.h"

namespace ds::cli {

// dsrun completion bash|zsh|fish: prints a script that asks, whenever there is something to
// complete, `dsrun completion words WORD...`; the answer is what the shell may add by itself
// (nothing, files, folders or program), then a line for every word, its meaning behind a tab.
StatusOr<int> CompletionCommand(const Invocation& invocation);

}  // namespace ds::cli
