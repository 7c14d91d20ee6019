#include "runtime/parallel/sequence/group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "runtime/comm/communicator.h"

namespace ds::sequence_parallel {
namespace {

using Counts = std::vector<std::int64_t>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Exchanges flat tensors: `sent[r]` elements of `outgoing` go to rank r, and `received[r]` come
// from it.
at::Tensor Exchange(const at::Tensor& outgoing, const Counts& sent, const Counts& received,
                    comm::Communicator& ranks) {
  const std::int64_t total = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  at::Tensor incoming = at::empty({total}, outgoing.options());
  ranks.AllToAll(incoming, outgoing.contiguous(), received, sent, "sequence");
  return incoming;
}

// Holds the communicator for the backward pass.
struct Ranks : torch::CustomClassHolder {
  explicit Ranks(comm::Communicator* borrowed) : ranks(borrowed) {}
  comm::Communicator* ranks;
};

// The gradient travels in the opposite direction: elements received from a rank return to it.
class ExchangeFunction : public torch::autograd::Function<ExchangeFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& outgoing,
                            const Counts& sent, const Counts& received, comm::Communicator* ranks) {
    context->saved_data["ranks"] = c10::IValue::make_capsule(c10::make_intrusive<Ranks>(ranks));
    context->saved_data["sent"] = sent;
    context->saved_data["received"] = received;
    return Exchange(outgoing, sent, received, *ranks);
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto capsule = context->saved_data["ranks"].toCapsule();
    return {Exchange(upstream[0], context->saved_data["received"].toIntVector(),
                     context->saved_data["sent"].toIntVector(),
                     *static_cast<Ranks*>(capsule.get())->ranks),
            {},
            {},
            {}};
  }
};

// Returns the number of heads of each rank, times `by`.
Counts Scaled(const std::vector<HeadRange>& shares, std::int64_t by) {
  Counts counts;
  for (const HeadRange& share : shares) counts.push_back(share.count * by);
  return counts;
}

// Returns the heads in rank order; a head on several ranks occurs several times.
at::Tensor LineUp(const at::Tensor& heads, const std::vector<HeadRange>& shares) {
  Counts order;
  for (const HeadRange& share : shares) {
    for (std::int64_t i = 0; i < share.count; ++i) order.push_back(share.first + i);
  }
  Counts all(static_cast<std::size_t>(heads.size(2)));
  std::iota(all.begin(), all.end(), 0);
  if (order == all) return heads;
  return heads.index_select(/*dim=*/2, at::tensor(order, heads.options().dtype(at::kLong)));
}

}  // namespace

SequenceGroup::SequenceGroup(comm::Communicator& ranks, SequenceKind kind)
    : ranks_(ranks.size() > 1 ? &ranks : nullptr),
      rank_(ranks.rank()),
      size_(ranks.size()),
      kind_(kind) {}

at::Tensor SequenceGroup::TokensToHeads(const at::Tensor& x,
                                        const std::vector<HeadRange>& shares) const {
  if (ranks_ == nullptr) return x;
  const std::int64_t samples = x.size(0), tokens = x.size(1), width = x.size(3);
  const std::int64_t own = shares[static_cast<std::size_t>(rank_)].count;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : LineUp(x, shares).split_with_sizes(Scaled(shares, 1), /*dim=*/2)) {
    parts.push_back(part.reshape({-1}));
  }
  const Counts received(static_cast<std::size_t>(size_), samples * tokens * own * width);
  return ExchangeFunction::apply(at::cat(parts), Scaled(shares, samples * tokens * width), received,
                                 ranks_)
      .view({size_, samples, tokens, own, width})
      .transpose(0, 1)
      .reshape({samples, size_ * tokens, own, width});
}

at::Tensor SequenceGroup::HeadsToTokens(const at::Tensor& x,
                                        const std::vector<HeadRange>& shares) const {
  if (ranks_ == nullptr) return x;
  const std::int64_t samples = x.size(0), tokens = x.size(1) / size_, columns = x.size(2);
  const std::int64_t width = columns / shares[static_cast<std::size_t>(rank_)].count;
  const Counts sent(static_cast<std::size_t>(size_), samples * tokens * columns);
  const Counts received = Scaled(shares, samples * tokens * width);
  const at::Tensor incoming = ExchangeFunction::apply(
      x.reshape({samples, size_, tokens, columns}).transpose(0, 1).reshape({-1}), sent, received,
      ranks_);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : incoming.split_with_sizes(received)) {
    parts.push_back(part.view({samples, tokens, -1}));
  }
  return at::cat(parts, /*dim=*/2);
}

}  // namespace ds::sequence_parallel
