#pragma once

// Group: the ranks that have the parts of the same samples between them, one behind the other, as
// layers use them (Ulysses, arXiv 2309.14509). What looks at a token alone runs on a rank's tokens;
// attention, which looks at all of them, runs on a rank's heads.
//
// Every call is collective, in the same order on all ranks. Of one rank, which is the default,
// nothing is communicated. Copies mean the same ranks. Threads: one thread per rank, that of the
// pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/sequence_parallel/heads/head_shares.h"

namespace ds::comm {
class Communicator;
}

namespace ds::sequence_parallel {

class Group {
 public:
  Group() = default;
  // Borrowed; outlives all copies and the graphs that were recorded with them.
  explicit Group(comm::Communicator& ranks);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // [samples, own tokens, all heads, width] -> [samples, all tokens, own heads, width], where rank
  // r has `shares[r]` of the heads. Differentiable: a head that several ranks have gets the sum.
  at::Tensor TokensToHeads(const at::Tensor& x, const std::vector<HeadRange>& shares) const;
  // [samples, all tokens, own heads * width] -> [samples, own tokens, all heads * width], the same
  // way back. Requires shares that do not overlap.
  at::Tensor HeadsToTokens(const at::Tensor& x, const std::vector<HeadRange>& shares) const;

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
};

}  // namespace ds::sequence_parallel
