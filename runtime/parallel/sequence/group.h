#pragma once

// Group: the ranks that have the parts of the same samples between them, as layers use them. What
// looks at a token alone runs on a rank's tokens. Attention, which looks at all of them, runs on a
// rank's heads (Ulysses, whose exchanges are here), or on its tokens, past which the others' keys
// and values go (ring_attention.h).
//
// Every call is collective, in the same order on all ranks. Of one rank, which is the default,
// nothing is communicated. Copies mean the same ranks. Threads: one thread per rank, that of the
// pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/plan/sequence/head_shares.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::comm {
class Communicator;
}

namespace ds::sequence_parallel {

class Group {
 public:
  Group() = default;
  // Borrowed; outlives all copies and the graphs that were recorded with them.
  explicit Group(comm::Communicator& ranks, SequenceKind kind = SequenceKind::kUlysses);

  int rank() const { return rank_; }
  int size() const { return size_; }
  SequenceKind kind() const { return kind_; }
  bool is_ring() const { return size_ > 1 && kind_ == SequenceKind::kRing; }
  comm::Communicator* ranks() const { return ranks_; }  // null of one rank
  // Attention takes so many tokens of a sample at a time (portion_attention.h); 0: all of them.
  std::int64_t portion() const { return portion_; }
  void TakePortions(std::int64_t tokens) { portion_ = tokens; }

  // [samples, own tokens, all heads, width] -> [samples, all tokens, own heads, width], where rank
  // r has `shares[r]` of the heads. Differentiable: a head that several ranks have gets the sum.
  at::Tensor TokensToHeads(const at::Tensor& x, const std::vector<HeadRange>& shares) const;
  // [samples, all tokens, own heads * width] -> [samples, own tokens, all heads * width], the same
  // way back. Requires shares that do not overlap.
  at::Tensor HeadsToTokens(const at::Tensor& x, const std::vector<HeadRange>& shares) const;

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
  SequenceKind kind_ = SequenceKind::kUlysses;
  std::int64_t portion_ = 0;
};

}  // namespace ds::sequence_parallel
