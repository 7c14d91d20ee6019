#include "runtime/parallel/expert/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <tuple>

namespace ds::moe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sums each token's rows. Slots equal to the number of rows belong to dropped routes.
at::Tensor SumOfRoutes(const at::Tensor& rows, const at::Tensor& slots, std::int64_t k) {
  const bool drops = rows.size(0) < slots.numel();
  const at::Tensor all =
      drops ? at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())}) : rows;
  return all.index_select(0, slots).view({slots.numel() / k, k, rows.size(1)}).sum(1);
}

// Adds up the gradients of a token's rows by its known indices. LibTorch's backward of index_select
// would add them one by one into zeros.
class SpreadFunction : public torch::autograd::Function<SpreadFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& tokens,
                            const at::Tensor& slots, std::int64_t k) {
    context->save_for_backward({slots});
    context->saved_data["k"] = k;
    return x.index_select(0, tokens);
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const at::Tensor slots = context->get_saved_variables()[0];
    return {SumOfRoutes(upstream[0], slots, context->saved_data["k"].toInt()), {}, {}, {}};
  }
};

class SumFunction : public torch::autograd::Function<SumFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& tokens, const at::Tensor& slots, std::int64_t k) {
    context->save_for_backward({tokens});
    return SumOfRoutes(rows, slots, k);
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    return {upstream[0].index_select(0, context->get_saved_variables()[0]), {}, {}, {}};
  }
};

}  // namespace

namespace {

// Returns the probabilities with zeros in the groups that the rule excludes.
at::Tensor KeepGroups(const at::Tensor& probabilities, const RouteRule& rule) {
  if (rule.topk_groups == rule.groups) return probabilities;
  const at::Tensor grouped = probabilities.unflatten(1, {rule.groups, -1});
  const at::Tensor best = grouped.detach().amax(-1);
  const at::Tensor top_groups = std::get<1>(at::topk(best, rule.topk_groups, -1));
  const at::Tensor is_left_out = at::ones_like(best, at::kBool).scatter_(1, top_groups, false);
  return grouped.masked_fill(is_left_out.unsqueeze(-1), 0.0).flatten(1);
}

}  // namespace

Choice ChooseExperts(const at::Tensor& logits, const RouteRule& rule) {
  Choice choice{.probabilities = at::softmax(logits.to(at::kFloat), -1)};
  std::tie(choice.weights, choice.experts) =
      at::topk(KeepGroups(choice.probabilities, rule), rule.k, -1);
  if (rule.normalises) choice.weights = choice.weights / choice.weights.sum(-1, /*keepdim=*/true);
  if (rule.scale != 1.0) choice.weights = choice.weights * rule.scale;
  return choice;
}

SortedRoutes::SortedRoutes(const at::Tensor& experts, std::int64_t expert_count)
    : k_(experts.size(1)) {
  const at::Tensor flat = experts.flatten();
  order_ = at::argsort(flat, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  sorted_indices_ = at::empty_like(order_);
  sorted_indices_.scatter_(0, order_, at::arange(order_.numel(), order_.options()));
  const at::Tensor counts = at::bincount(flat, /*weights=*/{}, expert_count).to(at::kCPU);
  counts_.assign(counts.const_data_ptr<std::int64_t>(),
                 counts.const_data_ptr<std::int64_t>() + expert_count);
  const std::int64_t routes = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  if (routes < order_.numel()) {  // the dropped ones are last
    order_ = order_.narrow(0, 0, routes);
    sorted_indices_ = sorted_indices_.clamp_max(routes);
  }
  tokens_ = order_.div(k_, "floor");
}

at::Tensor SortedRoutes::SpreadRows(const at::Tensor& x) const {
  return SpreadFunction::apply(x, tokens_, sorted_indices_, k_);
}

at::Tensor SortedRoutes::SumRows(const at::Tensor& rows) const {
  return SumFunction::apply(rows, tokens_, sorted_indices_, k_);
}

at::Tensor SortedRoutes::SortValues(const at::Tensor& values) const {
  return values.flatten().index_select(0, order_);
}

Choice DropRoutes(Choice choice, const at::Tensor& dropped) {
  const std::int64_t none = choice.probabilities.size(1);
  choice.experts = choice.experts.masked_fill(dropped.unsqueeze(1), none);
  return choice;
}

ExpertLoad MeasureLoad(const Choice& choice, const at::Tensor& valid) {
  at::Tensor probabilities = choice.probabilities;
  const std::int64_t experts = probabilities.size(1);
  // The last column is of dropped routes.
  at::Tensor chosen = at::zeros({probabilities.size(0), experts + 1}, probabilities.options());
  chosen = chosen.scatter_(1, choice.experts, 1.0).narrow(1, 0, experts);
  if (valid.defined()) {
    const at::Tensor weight = valid.to(at::kFloat).unsqueeze(1);
    chosen = chosen * weight;
    probabilities = probabilities * weight;
  }
  return {.routes = chosen.sum(0), .probabilities = probabilities.sum(0)};
}

at::Tensor BalanceLoss(const ExpertLoad& load, std::int64_t k) {
  const std::int64_t experts = load.probabilities.numel();
  const at::Tensor routes = load.routes.reshape({-1, experts}).sum(0);
  const at::Tensor tokens = (routes.sum() / static_cast<double>(k)).clamp_min(1.0);
  return (routes / tokens * (load.probabilities / tokens)).sum() * static_cast<double>(experts);
}

}  // namespace ds::moe
