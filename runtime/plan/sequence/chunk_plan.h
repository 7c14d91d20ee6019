#pragma once

// These functions plan the order in which attention visits the chunks (FPDT) of a sample:
// which keys each chunk's queries attend to, and when keys are used for the last time. At most one
// chunk's queries, keys and values are resident at a time. The keys and values of earlier chunks
// are offloaded and prefetched one chunk ahead (Yao et al. 2024, arXiv 2408.16978). Pure.
// Thread-safe.

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/plan/sequence/token_ranges.h"

namespace ds::sequence_parallel {

// Splits a sample into chunks of `chunk` tokens each; the last chunk has the remainder.
std::vector<TokenRange> SplitIntoChunks(std::int64_t tokens, std::int64_t chunk);

// Returns whether the queries of chunk `queries` attend to the keys of the earlier chunk `keys`.
using AttendsTo = std::function<bool(int queries, int keys)>;

// A visit to the keys and values of an earlier chunk. The step's next ones are fetched meanwhile.
struct KeyVisit {
  int keys = 0;
  bool last = false;  // no later step attends to them
  friend bool operator==(const KeyVisit&, const KeyVisit&) = default;
};

// The queries of one chunk, over its own keys and the keys of `earlier`, in this order.
struct ChunkStep {
  int queries = 0;
  std::vector<KeyVisit> earlier;
  // A later step attends to this chunk's keys. Set in a forward pass, which keeps the keys.
  bool keeps_keys = false;
  friend bool operator==(const ChunkStep&, const ChunkStep&) = default;
};

// Plans the steps of a forward pass, from the first chunk to the last.
std::vector<ChunkStep> PlanForward(int chunks, const AttendsTo& looks_at);
// Plans the steps of a backward pass, from the last chunk to the first. A chunk's key gradients are
// complete when its own step ends: only that chunk and later ones have attended to its keys.
std::vector<ChunkStep> PlanBackward(int chunks, const AttendsTo& looks_at);

}  // namespace ds::sequence_parallel
