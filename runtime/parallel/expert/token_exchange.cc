#include "runtime/parallel/expert/token_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/comm/communicator.h"

namespace ds::moe {

using Counts = std::vector<std::int64_t>;

// The plan of one exchange; the backward pass uses it again, in the opposite direction.
struct TokenExchange::Plan {
  comm::Communicator* ranks;
  Counts sent, received;  // number of rows to, and from, each rank
  // Rows arrive sorted by sending rank, but the experts need them sorted by expert: the permutation
  // to that order, and its inverse. Undefined for a single expert per rank: the orders are equal.
  at::Tensor order, inverse;
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using PlanPtr = std::shared_ptr<const TokenExchange::Plan>;

std::int64_t Sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

at::Tensor Exchange(const at::Tensor& rows, const Counts& sent, const Counts& received,
                    comm::Communicator& ranks) {
  at::Tensor arrived = at::empty({Sum(received), rows.size(1)}, rows.options());
  ranks.AllToAll(arrived, rows.contiguous(), received, sent, "experts");
  return arrived;
}

at::Tensor Reorder(const at::Tensor& rows, const at::Tensor& order) {
  return order.defined() ? rows.index_select(0, order) : rows;
}

at::Tensor SendToExperts(const at::Tensor& rows, const TokenExchange::Plan& plan) {
  return Reorder(Exchange(rows, plan.sent, plan.received, *plan.ranks), plan.order);
}

at::Tensor SendBack(const at::Tensor& rows, const TokenExchange::Plan& plan) {
  return Exchange(Reorder(rows, plan.inverse), plan.received, plan.sent, *plan.ranks);
}

// Holds the plan for the backward pass; autograd's context stores no other type of object.
struct SavedPlan : torch::CustomClassHolder {
  explicit SavedPlan(PlanPtr kept) : plan(std::move(kept)) {}
  PlanPtr plan;
};

// Sends rows to their experts, or back if `back` is set. The gradient travels in the opposite
// direction.
class TravelFunction : public torch::autograd::Function<TravelFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const PlanPtr& plan,
                            bool back) {
    context->saved_data["plan"] = c10::IValue::make_capsule(c10::make_intrusive<SavedPlan>(plan));
    context->saved_data["back"] = back;
    return back ? SendBack(rows, *plan) : SendToExperts(rows, *plan);
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto kept = context->saved_data["plan"].toCapsule();
    const TokenExchange::Plan& plan = *static_cast<SavedPlan*>(kept.get())->plan;
    const bool back = context->saved_data["back"].toBool();
    return {back ? SendToExperts(upstream[0], plan) : SendBack(upstream[0], plan), {}, {}};
  }
};

// Returns the indices of the received rows, which are sorted by rank, in the order of experts, then
// ranks. `arriving` has the number of rows by sending rank and expert: [rank * experts + expert],
// for `experts` experts on this rank.
Counts SortByExpert(const Counts& arriving, std::size_t experts) {
  Counts order, starts(arriving.size(), 0);
  std::partial_sum(arriving.begin(), arriving.end() - 1, starts.begin() + 1);
  order.reserve(static_cast<std::size_t>(Sum(arriving)));
  for (std::size_t expert = 0; expert < experts; ++expert) {
    for (std::size_t i = expert; i < arriving.size(); i += experts) {
      for (std::int64_t row = 0; row < arriving[i]; ++row) order.push_back(starts[i] + row);
    }
  }
  return order;
}

// Sums counts [rank * experts + expert] over each rank's experts.
Counts SumByRank(const Counts& counts, std::size_t experts) {
  Counts sums;
  for (auto first = counts.begin(); first != counts.end(); first += static_cast<int>(experts)) {
    sums.push_back(std::accumulate(first, first + static_cast<int>(experts), std::int64_t{0}));
  }
  return sums;
}

// Returns the inverse of a permutation.
at::Tensor Invert(const Counts& order) {
  Counts inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return at::tensor(inverse, at::kLong);
}

}  // namespace

ExpertGroup::ExpertGroup(comm::Communicator& ranks)
    : ranks_(ranks.size() > 1 ? &ranks : nullptr), rank_(ranks.rank()), size_(ranks.size()) {}

TokenExchange::TokenExchange(const ExpertGroup& group, const Counts& counts) : own_counts_(counts) {
  if (group.ranks() == nullptr) return;
  const auto size = static_cast<std::size_t>(group.size());
  DS_CHECK(!counts.empty() && counts.size() % size == 0);
  const std::size_t experts = counts.size() / size;
  const at::Tensor leaving = at::tensor(counts, at::kLong);
  const at::Tensor coming = at::empty_like(leaving);
  group.ranks()->control().AllToAll(coming, leaving, {}, {}, "rows of experts");
  const auto* first = coming.const_data_ptr<std::int64_t>();
  const Counts arriving(first, first + coming.numel());
  auto plan = std::make_shared<Plan>(Plan{.ranks = group.ranks(),
                                          .sent = SumByRank(counts, experts),
                                          .received = SumByRank(arriving, experts),
                                          .order = {},
                                          .inverse = {}});
  own_counts_.assign(experts, 0);
  for (std::size_t i = 0; i < arriving.size(); ++i) own_counts_[i % experts] += arriving[i];
  if (experts > 1) {
    const Counts order = SortByExpert(arriving, experts);
    plan->order = at::tensor(order, at::kLong).to(group.ranks()->device());
    plan->inverse = Invert(order).to(group.ranks()->device());
  }
  plan_ = std::move(plan);
}

at::Tensor TokenExchange::Send(const at::Tensor& rows) const {
  return plan_ == nullptr ? rows : TravelFunction::apply(rows, plan_, /*back=*/false);
}

at::Tensor TokenExchange::Return(const at::Tensor& rows) const {
  return plan_ == nullptr ? rows : TravelFunction::apply(rows, plan_, /*back=*/true);
}

}  // namespace ds::moe
