#pragma once

// Routing by the model's own rule, without capacity: every token goes to its k most probable
// experts, whatever their load. Tokens are sorted by expert, so that each expert has its rows side
// by side; a route that a gate has dropped (gating.h) has no row.
//
// N tokens of H values, E experts, N * k routes. Differentiable where it says so; any device; safe
// from any thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ds::moe {

struct Choice {
  at::Tensor probabilities;  // [N, E] fp32, differentiable
  at::Tensor experts;        // [N, k] int64
  at::Tensor weights;        // [N, k] fp32, differentiable
};

struct RouteRule {
  std::int64_t k = 1;
  bool normalises = true;  // the weights of a token's experts are made to add up to 1
  double scale = 1.0;      // and multiplied by it
  // Neighbouring experts are a group, all of one size. A token's experts are of so many groups,
  // those whose most probable expert is the most probable (DeepSeek-V2, arXiv 2405.04434).
  std::int64_t groups = 1, kept_groups = 1;
};

// The softmax of logits [N, E] and its k largest values by the rule.
Choice ChooseExperts(const at::Tensor& logits, const RouteRule& rule);

// SortedRoutes is the order of routes by expert, those of one expert by token.
class SortedRoutes {
 public:
  // experts [N, k]; those that are `expert_count` are dropped.
  SortedRoutes(const at::Tensor& experts, std::int64_t expert_count);

  // The number of routes of each expert; R is their sum, N * k where none is dropped.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  // Rows of x [N, H], one for each route: [R, H], differentiable.
  at::Tensor SpreadRows(const at::Tensor& x) const;
  // The sum of each token's routes [R, H]: [N, H], differentiable. Dropped ones add nothing.
  at::Tensor SumRows(const at::Tensor& rows) const;
  // Values of routes [N, k] in this order: [R], differentiable.
  at::Tensor SortValues(const at::Tensor& values) const;

 private:
  std::int64_t k_;
  at::Tensor order_;   // [R]: which route of the tokens' is at this place
  at::Tensor places_;  // [N * k]: where a route of the tokens' is; R: dropped
  at::Tensor tokens_;  // [R]: whose route is at this place
  std::vector<std::int64_t> counts_;
};

// The balance of experts is judged by sums over layers and tokens.
struct ExpertLoad {
  at::Tensor routes;         // of each expert, [E] fp32, or by layer [layers, E]
  at::Tensor probabilities;  // [E] fp32, differentiable
};
// Measures that of all tokens, or of those that `mask` [N] leaves, if it is defined.
ExpertLoad MeasureLoad(const Choice& choice, const at::Tensor& mask);
// E * sum(share of the tokens * mean probability), k where all experts have equally many tokens, of
// a load of k routes a token (Fedus et al. 2021, as transformers adds it up over layers). A scalar.
at::Tensor BalanceLoss(const ExpertLoad& load, std::int64_t k);

}  // namespace ds::moe
