#pragma once

// LogFilter selects the ranks to show on the console. Rank logs always receive the full output.
//
// Pure; safe from any thread.

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class LogFilter {
 public:
  // The default filter shows everything.
  LogFilter() = default;

  // Parses "0,2-3" in any order, or "all"; "" also means "all". With `errors_only`, the filter
  // shows only the standard error of these ranks.
  static StatusOr<LogFilter> Parse(std::string_view log_ranks, bool errors_only = false);

  bool Shows(int rank, bool is_stderr) const;

  // Returns kInvalidArgument if the filter names a rank outside a job of `world_size` ranks.
  Status CheckRanks(int world_size) const;

 private:
  bool all_ranks_ = true;
  bool errors_only_ = false;
  std::vector<std::pair<int, int>> ranges_;  // first and last; unused if all_ranks_
};

}  // namespace ds::cli
