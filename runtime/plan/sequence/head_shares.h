#pragma once

// ShareHeads assigns the heads of a layer to the ranks along the sequence axis. Pure. Thread-safe.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"

namespace ds::sequence_parallel {

struct HeadRange {
  std::int64_t first = 0, count = 0;
  friend bool operator==(const HeadRange&, const HeadRange&) = default;
};

// Indexed by rank. The ranges of queries cover all heads, in order. The ranges of keys, which are
// also the ranges of values, may overlap.
struct HeadShares {
  std::vector<HeadRange> queries, keys;
};

// With at most as many ranks as key heads, a rank has full key heads and the queries that share
// them; if the ranks do not divide the heads, the first ranks have one more. With more ranks than
// key heads, each rank has one key head and several ranks have the same one: the ranks must then
// divide the queries and be a multiple of the keys. Otherwise the error names the nearest numbers
// of ranks that can share the heads.
StatusOr<HeadShares> ShareHeads(std::int64_t queries, std::int64_t keys, int ranks);

}  // namespace ds::sequence_parallel
