#pragma once

// ChooseExperts and SortedRoutes route tokens by the model's own rule, without capacity: every
// token goes to its k most probable experts, at any load. Tokens are sorted by expert, so that the
// rows of each expert are contiguous. A route that a gate dropped (gating.h) has no row.
//
// N tokens of H values, E experts, N * k routes. Differentiable where noted. Any device;
// thread-safe.

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
  bool normalises = true;  // the weights of a token's experts are normalised to sum 1
  double scale = 1.0;      // multiplies the weights
  // Consecutive experts form groups of equal size. A token's experts are from `topk_groups` groups:
  // those with the most probable experts (DeepSeek-V2, arXiv 2405.04434).
  std::int64_t groups = 1, topk_groups = 1;
};

// Returns the softmax of logits [N, E] and its k largest values by the rule.
Choice ChooseExperts(const at::Tensor& logits, const RouteRule& rule);

// Returns the choice without the routes of tokens where `dropped` [N] is true.
Choice DropRoutes(Choice choice, const at::Tensor& dropped);

// SortedRoutes sorts routes by expert, then by token.
class SortedRoutes {
 public:
  // experts [N, k]; entries equal to `expert_count` are dropped routes.
  SortedRoutes(const at::Tensor& experts, std::int64_t expert_count);

  // The number of routes of each expert; R is their sum, N * k without dropped routes.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  // Returns rows of x [N, H], one per route: [R, H], differentiable.
  at::Tensor SpreadRows(const at::Tensor& x) const;
  // Returns the sum of each token's routes [R, H]: [N, H], differentiable. Dropped routes add
  // nothing.
  at::Tensor SumRows(const at::Tensor& rows) const;
  // Returns the routes' values [N, k] in sorted order: [R], differentiable.
  at::Tensor SortValues(const at::Tensor& values) const;

 private:
  std::int64_t k_;
  at::Tensor order_;           // [R]: index in [N * k] of each sorted route
  at::Tensor sorted_indices_;  // [N * k]: index in the sorted order; R: dropped
  at::Tensor tokens_;          // [R]: token of each sorted route
  std::vector<std::int64_t> counts_;
};

// Sums over tokens (and layers), for the balance of experts.
struct ExpertLoad {
  at::Tensor routes;         // of each expert, [E] fp32, or by layer [layers, E]
  at::Tensor probabilities;  // [E] fp32, differentiable
};
// Returns the load of all tokens, or of those where `valid` [N] is not 0, if it is defined. Dropped
// routes do not count.
ExpertLoad MeasureLoad(const Choice& choice, const at::Tensor& valid);
// Returns E * sum(share of the tokens * mean probability), for a load with k routes per token
// (Fedus et al. 2021, added up over layers as in transformers). It is k if all experts have equal
// numbers of tokens. A scalar.
at::Tensor BalanceLoss(const ExpertLoad& load, std::int64_t k);

}  // namespace ds::moe
