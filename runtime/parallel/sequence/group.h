#pragma once

// SequenceGroup is the group of ranks that split the same samples along the sequence: each rank has
// some of a sample's tokens. Layers hold a copy. Most operations need one token at a time and run
// on the rank's own tokens. Attention needs all tokens of a sample. Under Ulysses a rank computes
// it over all tokens for its own heads; TokensToHeads and HeadsToTokens exchange the data. In a
// ring a rank computes it for all heads of its own tokens, while keys and values circulate
// (ring_attention.h).
//
// TokensToHeads and HeadsToTokens are collective, forward and backward, in the same order on all
// ranks. A group of one rank, the default, communicates nothing. Threads: one thread per rank, the
// thread that runs the pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/plan/sequence/head_shares.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::comm {
class Communicator;
}

namespace ds::sequence_parallel {

class SequenceGroup {
 public:
  SequenceGroup() = default;
  // `ranks` must outlive all copies of this object, and the graphs recorded with them.
  explicit SequenceGroup(comm::Communicator& ranks, SequenceKind kind = SequenceKind::kUlysses);

  int rank() const { return rank_; }
  int size() const { return size_; }
  SequenceKind kind() const { return kind_; }
  bool is_ring() const { return size_ > 1 && kind_ == SequenceKind::kRing; }
  comm::Communicator* ranks() const { return ranks_; }  // null for a group of one rank
  // Number of tokens of a sample that attention processes at a time (FPDT chunk,
  // chunked_attention.h); 0: all.
  std::int64_t chunk() const { return chunk_; }
  void SetChunk(std::int64_t tokens) { chunk_ = tokens; }

  // [samples, own tokens, all heads, width] -> [samples, all tokens, own heads, width]. Rank r
  // receives the heads `shares[r]`; a key head may go to several ranks. Differentiable: the
  // gradient of such a head is the sum over these ranks.
  at::Tensor TokensToHeads(const at::Tensor& x, const std::vector<HeadRange>& shares) const;
  // The inverse, for attention's result, with the heads of a token side by side: [samples, all
  // tokens, own heads * width] -> [samples, own tokens, all heads * width]. Differentiable.
  // Requires shares that do not overlap.
  at::Tensor HeadsToTokens(const at::Tensor& x, const std::vector<HeadRange>& shares) const;

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
  SequenceKind kind_ = SequenceKind::kUlysses;
  std::int64_t chunk_ = 0;
};

}  // namespace ds::sequence_parallel
