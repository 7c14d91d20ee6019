#pragma once

// ShareHeads decides which heads of a layer each of the ranks along the sequence axis computes.
// Pure; safe from any thread.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"

namespace ds::sequence_parallel {

struct HeadRange {
  std::int64_t first = 0, count = 0;
  friend bool operator==(const HeadRange&, const HeadRange&) = default;
};

// By rank. All ranges of queries together are all heads, in their order; those of the keys, which
// are those of the values too, may overlap.
struct HeadShares {
  std::vector<HeadRange> queries, keys;
};

// A rank has whole heads of the keys and the queries that share them, the first ranks one more
// where they do not divide the heads. Of more ranks than heads of the keys, each has one, and
// several have the same: the ranks have to divide the queries then, and be a multiple of the keys.
// Else the error names the numbers of ranks next to it that can share the heads.
StatusOr<HeadShares> ShareHeads(std::int64_t queries, std::int64_t keys, int ranks);

}  // namespace ds::sequence_parallel
