#pragma once

// Group: the ranks that have the parts of one model's matrices between them, as layers use them.
//
// All of them run the same layers on the same samples, so every call here is collective, in the
// same order on all. Results are the same bits on all of them (runtime/comm): what each computes of
// them alone, a norm's weight for one, stays the same on all.
//
// A group of one rank, the default, communicates nothing. Copies mean the same ranks. Threads: one
// thread per rank, that of the pass.

#include <ATen/core/Tensor.h>

#include <string_view>

#include "runtime/comm/work.h"

namespace ds::comm {
class Communicator;
}

namespace ds::tensor_parallel {

class Group {
 public:
  Group() = default;
  // Borrowed; outlives all copies and the graphs that were recorded with them.
  explicit Group(comm::Communicator& ranks, bool sums_overlap = false);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Tells whether sums of gradients go on under products, where there are some.
  bool sums_overlap() const { return sums_overlap_ && size_ > 1; }

  // In place. `tag` says what is added (Communicator).
  void Sum(const at::Tensor& tensor, std::string_view tag) const;
  // The same, going on by itself. Requires several ranks.
  comm::Work StartSum(const at::Tensor& tensor, std::string_view tag) const;
  // [...] of every rank -> [size, ...], in their order.
  at::Tensor Gather(const at::Tensor& tensor, std::string_view tag) const;

  // x itself. What flows back into it is the sum of what all ranks' uses of it give: for what all
  // ranks have whole and each uses for another part.
  at::Tensor Share(const at::Tensor& x, std::string_view tag) const;
  // The sum of the ranks' x. Each of them gets of its gradient what all get.
  at::Tensor AddUp(const at::Tensor& x, std::string_view tag) const;

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool sums_overlap_ = false;
};

}  // namespace ds::tensor_parallel
