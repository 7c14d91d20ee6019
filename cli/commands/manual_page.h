#pragma once

// The manual page, dsrun(1), made of the command table and of what the parsers take; and the exit
// statuses, which the help shows, too.
//
// Threads: one at a time (see command_flags.h).

#include <span>
#include <string>
#include <string_view>

namespace ds::cli {

// In the language of man(7).
std::string ManualPage();

struct ExitStatusRow {
  int status;           // runtime/base/exit_codes.h
  int distinct_status;  // with --exit_codes distinct
  std::string_view meaning;
};
std::span<const ExitStatusRow> ExitStatusTable();

}  // namespace ds::cli
