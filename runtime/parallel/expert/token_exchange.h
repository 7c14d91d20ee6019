#pragma once

// TokenExchange sends rows of tokens to the ranks of their experts, and the results back.
//
// The ranks of an ExpertGroup share a layer's experts: rank r has the r-th of equal runs of
// experts. Each rank sends the rows of its tokens, sorted by expert, to the ranks of the experts.
// The all-to-all sends exact numbers of rows: nothing is dropped or padded. The results return in
// the original order. Gradients go the opposite ways.
//
// Every call is collective, in the same order on all ranks of the group, and so are the backward
// passes. A group of one rank, the default, communicates nothing. Threads: one thread per rank, the
// thread of the pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace ds::comm {
class Communicator;
}

namespace ds::moe {

class ExpertGroup {
 public:
  ExpertGroup() = default;
  // `ranks` must outlive all copies of this object, and the graphs recorded with them.
  explicit ExpertGroup(comm::Communicator& ranks);

  int rank() const { return rank_; }
  int size() const { return size_; }
  comm::Communicator* ranks() const { return ranks_; }  // null for a group of one rank

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
};

class TokenExchange {
 public:
  // Exchanges the numbers of rows over the control group. `counts`: the number of this rank's rows
  // for each expert of the layer. The group's size must divide the number of experts.
  TokenExchange(const ExpertGroup& group, const std::vector<std::int64_t>& counts);

  // The number of rows for each of this rank's experts.
  const std::vector<std::int64_t>& own_counts() const { return own_counts_; }
  // Rows [sum of counts, H] sorted by expert -> rows of this rank's experts [sum of own counts, H],
  // sorted by expert, then by rank. Differentiable.
  at::Tensor Send(const at::Tensor& rows) const;
  // Inverse of Send: [sum of own counts, H] -> [sum of counts, H]. Differentiable.
  at::Tensor Return(const at::Tensor& rows) const;

  struct Plan;

 private:
  std::vector<std::int64_t> own_counts_;
  std::shared_ptr<const Plan> plan_;  // null: no communication
};

}  // namespace ds::moe
