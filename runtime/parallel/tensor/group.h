#pragma once

// Group is the set of ranks that share the matrices of one model, as layers use it.
//
// All ranks run the same layers on the same samples: every call here is collective, in the same
// order on all ranks. Results have the same bits on all ranks (runtime/comm). So replicated values
// that each rank computes from them, such as a norm's weight, stay equal.
//
// A group of one rank, the default, communicates nothing. Copies refer to the same ranks. Threads:
// one thread per rank, the thread of the pass.

#include <ATen/core/Tensor.h>

#include <string_view>

#include "runtime/comm/work.h"

namespace ds::comm {
class Communicator;
}

namespace ds::tensor_parallel {

class TensorGroup {
 public:
  TensorGroup() = default;
  // Borrowed; must outlive all copies and the graphs recorded with them.
  explicit TensorGroup(comm::Communicator& ranks, bool sums_overlap = false);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Returns whether gradient sums overlap matrix products, if there are any.
  bool sums_overlap() const { return sums_overlap_ && size_ > 1; }

  // Sums in place. `tag` names the tensor (Communicator).
  void Sum(const at::Tensor& tensor, std::string_view tag) const;
  // Starts an asynchronous sum. Requires several ranks.
  comm::Work StartSum(const at::Tensor& tensor, std::string_view tag) const;
  // [...] of every rank -> [size, ...], in rank order.
  at::Tensor Gather(const at::Tensor& tensor, std::string_view tag) const;

  // Returns x. Its gradient is the sum of all ranks' gradients. For an input that all ranks have in
  // full and each rank uses for a different part.
  at::Tensor Share(const at::Tensor& x, std::string_view tag) const;
  // Returns the sum of the ranks' x. Each rank's gradient is the gradient of the result.
  at::Tensor AddUp(const at::Tensor& x, std::string_view tag) const;

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool sums_overlap_ = false;
};

}  // namespace ds::tensor_parallel
