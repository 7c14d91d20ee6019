#pragma once

// Group is the set of ranks that split the same samples along the sequence, as layers use it.
// Operations on single tokens run on a rank's tokens. Attention, over all tokens, runs on a rank's
// heads (Ulysses; its exchanges are here), or on its tokens while keys and values circulate
// (ring_attention.h).
//
// Every call is collective, in the same order on all ranks. A group of one rank, the default,
// communicates nothing. Copies refer to the same ranks. Threads: one thread per rank, the thread of
// the pass.

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
  // Borrowed; must outlive all copies and the graphs recorded with them.
  explicit SequenceGroup(comm::Communicator& ranks, SequenceKind kind = SequenceKind::kUlysses);

  int rank() const { return rank_; }
  int size() const { return size_; }
  SequenceKind kind() const { return kind_; }
  bool is_ring() const { return size_ > 1 && kind_ == SequenceKind::kRing; }
  comm::Communicator* ranks() const { return ranks_; }  // null if of one rank
  // Number of tokens of a sample that attention processes at a time (FPDT chunk,
  // chunked_attention.h); 0: all.
  std::int64_t chunk() const { return chunk_; }
  void SetChunk(std::int64_t tokens) { chunk_ = tokens; }

  // [samples, own tokens, all heads, width] -> [samples, all tokens, own heads, width], where rank
  // r has the heads `shares[r]`. Differentiable: the gradient of a head on several ranks is the
  // sum.
  at::Tensor TokensToHeads(const at::Tensor& x, const std::vector<HeadRange>& shares) const;
  // Inverse: [samples, all tokens, own heads * width] -> [samples, own tokens, all heads * width].
  // Requires shares that do not overlap.
  at::Tensor HeadsToTokens(const at::Tensor& x, const std::vector<HeadRange>& shares) const;

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
  SequenceKind kind_ = SequenceKind::kUlysses;
  std::int64_t chunk_ = 0;
};

}  // namespace ds::sequence_parallel
