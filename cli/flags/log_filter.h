#pragma once

// LogFilter: which ranks' output the console shows. The rank logs have everything whatever it says.
//
// Pure; safe from any thread.

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class LogFilter {
 public:
  // Shows everything.
  LogFilter() = default;

  // "0,2-3" in any order, or "all"; "" is "all" too. With `errors_only`, of these ranks only what
  // they write to standard error.
  static StatusOr<LogFilter> Parse(std::string_view log_ranks, bool errors_only = false);

  bool Shows(int rank, bool is_stderr) const;

  // kInvalidArgument when a rank is named that a job of `world_size` ranks does not have.
  Status CheckRanks(int world_size) const;

 private:
  bool all_ranks_ = true;
  bool errors_only_ = false;
  std::vector<std::pair<int, int>> ranges_;  // first and last; unless all_ranks_
};

}  // namespace ds::cli
