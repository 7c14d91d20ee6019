#include "runtime/plan/sequence/head_shares.h"

#include <algorithm>
#include <string>

namespace ds::sequence_parallel {
namespace {

bool CanShare(std::int64_t queries, std::int64_t keys, int ranks) {
  return ranks <= keys || (queries % ranks == 0 && ranks % keys == 0);
}

// Returns "2 or 6 can". A smaller number always exists: one rank has all heads.
std::string NameNearest(std::int64_t queries, std::int64_t keys, int ranks) {
  int below = ranks - 1;
  while (!CanShare(queries, keys, below)) --below;
  const std::int64_t most = std::min(queries, std::int64_t{4} * ranks);
  for (int above = ranks + 1; above <= most; ++above) {
    if (!CanShare(queries, keys, above)) continue;
    return std::to_string(below) + " or " + std::to_string(above) + " can";
  }
  return std::to_string(below) + " can";
}

}  // namespace

StatusOr<HeadShares> ShareHeads(std::int64_t queries, std::int64_t keys, int ranks) {
  if (!CanShare(queries, keys, ranks)) {
    return InvalidArgumentError(std::to_string(ranks) + " sequence ranks cannot share " +
                                std::to_string(queries) + " heads of the queries and " +
                                std::to_string(keys) +
                                " of the keys: " + NameNearest(queries, keys, ranks));
  }
  HeadShares shares;
  const std::int64_t shared_by = queries / keys, each = keys / ranks, longer = keys % ranks;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (ranks <= keys) {
      const HeadRange own{each * rank + std::min(rank, longer), each + (rank < longer ? 1 : 0)};
      shares.keys.push_back(own);
      shares.queries.push_back({own.first * shared_by, own.count * shared_by});
    } else {
      shares.keys.push_back({rank * keys / ranks, 1});
      shares.queries.push_back({rank * queries / ranks, queries / ranks});
    }
  }
  return shares;
}

}  // namespace ds::sequence_parallel
