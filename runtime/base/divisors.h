#pragma once

// NameNearestDivisors suggests valid degrees of parallelism for error messages, when the requested
// degree does not divide the size it splits. Pure; thread-safe.

#include <cstdint>
#include <string>

namespace ds {

// Returns the largest divisor of `count` below `wanted` and the smallest above it, or the only one,
// as a phrase: "2 or 4". Requires `count` >= 1 and a `wanted` that does not divide it.
std::string NameNearestDivisors(std::int64_t count, std::int64_t wanted);

}  // namespace ds
