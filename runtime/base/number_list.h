#pragma once

// Lists of numbers as people write and read them: of cores, ranks, nodes.
//
// Pure; safe from any thread.

#include <string>
#include <vector>

namespace ds {

// Writes numbers that ascend with their ranges: "0,2-4,8".
std::string FormatNumberList(const std::vector<int>& numbers);

}  // namespace ds
