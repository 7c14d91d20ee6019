#pragma once

// CommandFlags describes the flags of a command for completions and the manual page. The command's
// own parser supplies them, so they always match the parser.
//
// Not thread-safe. No other thread may write to standard output meanwhile.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"

namespace ds::cli {

// Describes the launch flags, which precede a command.
FlagDescriptions DescribeLaunchFlags();

// Describes the flags of a command, including the launch flags that it takes after its name.
FlagDescriptions DescribeCommand(const Command& command);

// The manual page, dsrun(1), generated from the command table and the parsers. It includes the exit
// statuses, which the help shows as well.

// Returns the page in man(7) format.
std::string ManualPage();

struct ExitStatusRow {
  int status;           // runtime/base/exit_codes.h
  int distinct_status;  // with --exit_codes distinct
  std::string_view meaning;
};
std::span<const ExitStatusRow> ExitStatusTable();

// CompleteWords completes the last word of a command line in a shell.

struct Completion {
  // Candidates that the shell adds by itself.
  enum class More { kNothing, kFiles, kFolders, kProgram };
  More more = More::kNothing;
  std::vector<std::pair<std::string, std::string>> words;  // each with its meaning
};

// `words` are the words after "dsrun". The last one is being typed and may be empty. A separate "="
// counts as part of the previous flag, because bash passes it in this form.
Completion CompleteWords(const std::vector<std::string>& words);

}  // namespace ds::cli
