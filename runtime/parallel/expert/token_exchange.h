#pragma once

// TokenExchange: rows of tokens on their way to the ranks that have their experts, and back.
//
// The ranks of an ExpertGroup have a layer's experts between them, rank r the r-th of as many equal
// runs. Each sends the rows of its own tokens, sorted by expert, to where those experts are (an
// all-to-all with as many rows as it takes: nothing is dropped or padded), and gets what they have
// made of them back, in the order that it has sent them in. Gradients go the opposite ways.
//
// Every call is collective, in the same order on all ranks of the group, and so are the backward
// passes. A group of one rank, the default, communicates nothing. Threads: one thread per rank,
// that of the pass.

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
  // Borrowed; outlives all copies and the graphs that were recorded with them.
  explicit ExpertGroup(comm::Communicator& ranks);

  int rank() const { return rank_; }
  int size() const { return size_; }
  comm::Communicator* ranks() const { return ranks_; }  // null: of one rank

 private:
  comm::Communicator* ranks_ = nullptr;
  int rank_ = 0, size_ = 1;
};

class TokenExchange {
 public:
  // `counts`: how many rows this rank has for each of all experts, of which the group's size is a
  // divisor.
  TokenExchange(const ExpertGroup& group, const std::vector<std::int64_t>& counts);

  // Tells how many rows come to each of this rank's experts.
  const std::vector<std::int64_t>& own_counts() const { return own_counts_; }
  // Rows [sum of counts, H] sorted by expert -> those of this rank's experts [sum of own counts,
  // H], sorted by expert, of one expert by rank. Differentiable.
  at::Tensor Send(const at::Tensor& rows) const;
  // The same way back: [sum of own counts, H] -> [sum of counts, H]. Differentiable.
  at::Tensor Return(const at::Tensor& rows) const;

  struct Plan;

 private:
  std::vector<std::int64_t> own_counts_;
  std::shared_ptr<const Plan> plan_;  // null: nothing goes anywhere
};

}  // namespace ds::moe
