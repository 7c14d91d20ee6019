#pragma once

// Core lists, and the division of a host's cores among its ranks.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// Parses "0,2-4,8": numbers and inclusive ranges, strictly ascending. FormatNumberList is the
// inverse (runtime/base/number_list.h).
StatusOr<std::vector<int>> ParseCoreList(std::string_view text);

// Divides `cores` among `ranks` ranks and returns the shares by local rank. Shares are contiguous
// and as equal as possible; the first ranks get the remaining cores. Fails if there are fewer cores
// than ranks.
StatusOr<std::vector<std::vector<int>>> DivideCores(const std::vector<int>& cores, int ranks);

}  // namespace ds::cli
