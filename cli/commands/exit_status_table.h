#pragma once

// The exit statuses of dsrun and their meaning, for its help and its manual page.

#include <span>
#include <string_view>

namespace ds::cli {

struct ExitStatusRow {
  int status;           // runtime/base/exit_codes.h
  int distinct_status;  // with --exit_codes distinct
  std::string_view meaning;
};

std::span<const ExitStatusRow> ExitStatusTable();

}  // namespace ds::cli
