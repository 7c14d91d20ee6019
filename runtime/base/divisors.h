#pragma once

// Divisors next to a number: what a message suggests where a degree of parallelism does not divide
// what it cuts. Pure; safe from any thread.

#include <cstdint>
#include <string>

namespace ds {

// The largest divisor of `count` below `wanted` and the smallest above it, as a sentence goes on:
// "2 or 4", or the one that there is. Requires a count of at least 1, and a wanted number that does
// not divide it.
std::string NameNearestDivisors(std::int64_t count, std::int64_t wanted);

}  // namespace ds
