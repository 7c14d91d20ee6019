#pragma once

// CommandFlags: what a command takes, as its own parser says it: for completions and for the manual
// page, which so cannot drift from what is parsed.
//
// Threads: one at a time; standard output is not to be written meanwhile.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"

namespace ds::cli {

// Tells the flags in front of a command.
FlagDescriptions DescribeLaunchFlags();

// Tells those of a command; the launch flags that it takes behind its name are among them.
FlagDescriptions DescribeCommand(const Command& command);

// The manual page, dsrun(1), made of the command table and of what the parsers take; and the exit
// statuses, which the help shows, too.

// In the language of man(7).
std::string ManualPage();

struct ExitStatusRow {
  int status;           // runtime/base/exit_codes.h
  int distinct_status;  // with --exit_codes distinct
  std::string_view meaning;
};
std::span<const ExitStatusRow> ExitStatusTable();

// CompleteWords: what may stand where a user of a shell is typing.

struct Completion {
  // The shell adds these by itself.
  enum class More { kNothing, kFiles, kFolders, kProgram };
  More more = More::kNothing;
  std::vector<std::pair<std::string, std::string>> words;  // each with what it means
};

// `words` are those behind "dsrun"; the last one is being typed, and may be empty. A lone "="
// counts as part of the flag in front of it: that is how bash hands it over.
Completion CompleteWords(const std::vector<std::string>& words);

}  // namespace ds::cli
