#pragma once

// FormatNumberList writes lists of numbers (cores, ranks, nodes) for people.
//
// Pure; thread-safe.

#include <string>
#include <vector>

namespace ds {

// Formats ascending numbers as ranges: "0,2-4,8".
std::string FormatNumberList(const std::vector<int>& numbers);

}  // namespace ds
