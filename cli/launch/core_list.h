#pragma once

// Lists of cores and how they are divided among the ranks of a host.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// "0,2-4,8": numbers and inclusive ranges, strictly ascending; FormatNumberList writes it
// (runtime/base/number_list.h).
StatusOr<std::vector<int>> ParseCoreList(std::string_view text);

// The shares of `ranks` ranks, by local rank: contiguous, as equal as possible, earlier ranks get
// the cores that are left over. An error when there are fewer cores than ranks.
StatusOr<std::vector<std::vector<int>>> DivideCores(const std::vector<int>& cores, int ranks);

}  // namespace ds::cli
