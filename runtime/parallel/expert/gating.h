#pragma once

// Gates: which experts a token goes to, and what their results are weighted by. Of top-1 (Fedus et
// al. 2021), top-2 (Lepikhin et al. 2020) and top-k gates, an expert takes so many tokens at most
// (its capacity), and what is above that is dropped. They compute what DeepSpeed's do
// (deepspeed/moe/sharded_moe.py), in the same operators, to the same bits.
//
// Pure: random numbers are arguments. Routes are differentiable in `weights` and `balance_loss`.
// S tokens, E experts, k routes of a token. Everything is fp32; logits are [S, E]. Any device; safe
// from any thread.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ds::moe {

// This says which tokens are dropped where an expert has too many.
enum class DropPolicy {
  kByProbability,  // those with the smallest gate values are dropped
  kByPosition,     // the last ones are dropped
};

// An expert takes so many tokens.
struct Capacity {
  bool drops = true;  // false: as many as the fullest expert has
  double factor = 1.0;
  std::int64_t least = 8;  // tokens
};

struct Routes {
  at::Tensor experts;       // [k, S] int64; -1: dropped
  at::Tensor places;        // [k, S] int64, among the tokens that the expert takes; dropped: 0
  at::Tensor weights;       // [k, S] fp32; dropped: 0, but of the top-k gate
  at::Tensor counts;        // [E] int64, tokens of each expert before any is dropped
  std::int64_t capacity;    // of each expert
  at::Tensor balance_loss;  // a scalar; 1 where all experts have equally many tokens
};

struct Top1Options {
  Capacity capacity = {};
  // [S, E] or undefined, added to the logits where an expert is chosen (RSample): MakeGumbel.
  at::Tensor choice_noise = {};
  // [S, E] or undefined, uniform in [0, 1): which of an expert's tokens are kept (random token
  // selection); undefined: whichever topk finds first.
  at::Tensor selection_noise = {};
  at::Tensor used = {};  // [S] of 0 and 1, or undefined: tokens that count
};
// One expert for each token, with its probability as weight. Throws c10::Error where there are
// fewer tokens than the least capacity.
Routes GateTop1(const at::Tensor& logits, const Top1Options& options);

struct Top2Options {
  Capacity capacity = {};        // its factor is one route's
  at::Tensor second_noise = {};  // [S, E] or undefined, added where the second is chosen
};
// The most probable expert, and behind it the second, or one drawn. Weights of a token add up to 1.
Routes GateTop2(const at::Tensor& logits, const Top2Options& options);

struct TopKOptions {
  std::int64_t k = 2;
  Capacity capacity = {};  // its factor is one route's
  DropPolicy policy = DropPolicy::kByProbability;
};
// Weights of what is kept of a token add up to 1.
Routes GateTopK(const at::Tensor& logits, const TopKOptions& options);

// Gumbel noise of uniform numbers in [0, 1), with which the largest sum is a draw from the softmax.
at::Tensor MakeGumbel(const at::Tensor& uniform);

// x times numbers in [1 - epsilon, 1 + epsilon), which `uniform` in [0, 1), of x's shape, stands
// for.
at::Tensor Jitter(const at::Tensor& x, const at::Tensor& uniform, double epsilon);

// The mean of the squared logarithm of the softmax's denominator, which keeps logits small (Zoph et
// al. 2022). A scalar.
at::Tensor LogitLoss(const at::Tensor& logits);

}  // namespace ds::moe
