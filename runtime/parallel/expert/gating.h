#pragma once

// GateTop1, GateTop2 and GateTopK choose the experts of each token and the weights of their
// results: top-1 (Fedus et al. 2021), top-2 (Lepikhin et al. 2020) and top-k gates. An expert takes
// a limited number of tokens (its capacity); routes above it are dropped. The results equal those
// of DeepSpeed's gates (deepspeed/moe/sharded_moe.py), with the same operators, bit for bit.
//
// Pure: random numbers are arguments. Routes are differentiable in `weights` and `balance_loss`. S
// tokens, E experts, k routes of a token. Everything is fp32; logits are [S, E]. Any device;
// thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ds::moe {

// DropPolicy selects the tokens that are dropped if an expert has too many.
enum class DropPolicy {
  kByProbability,  // the smallest gate values are dropped
  kByPosition,     // the last tokens are dropped
};

// Capacity limits the number of tokens of an expert.
struct Capacity {
  bool drops = true;  // false: the count of the fullest expert
  double factor = 1.0;
  std::int64_t least = 8;  // tokens
};

struct Routes {
  at::Tensor experts;       // [k, S] int64; -1: dropped
  at::Tensor slots;         // [k, S] int64, index among the expert's tokens; dropped: 0
  at::Tensor weights;       // [k, S] fp32; dropped: 0, except in the top-k gate
  at::Tensor counts;        // [E] int64, tokens of each expert before dropping
  std::int64_t capacity;    // of each expert
  at::Tensor balance_loss;  // a scalar; 1 if all experts have equal numbers of tokens
};

struct Top1Options {
  Capacity capacity = {};
  // [S, E] or undefined, added to the logits when choosing an expert (RSample): MakeGumbel.
  at::Tensor choice_noise = {};
  // [S, E] or undefined, uniform in [0, 1): selects an expert's tokens to keep (random token
  // selection). Undefined: the first ones that topk finds.
  at::Tensor selection_noise = {};
  at::Tensor used = {};  // [S] of 0 and 1, or undefined: tokens that count
};
// One expert per token, with its probability as weight. Throws c10::Error if there are fewer tokens
// than the least capacity.
Routes GateTop1(const at::Tensor& logits, const Top1Options& options);

struct Top2Options {
  Capacity capacity = {};        // the factor is per route
  at::Tensor second_noise = {};  // [S, E] or undefined, added when choosing the second
};
// The most probable expert, and the second one, possibly drawn at random. The weights of a token
// add up to 1.
Routes GateTop2(const at::Tensor& logits, const Top2Options& options);

struct TopKOptions {
  std::int64_t k = 2;
  Capacity capacity = {};  // the factor is per route
  DropPolicy policy = DropPolicy::kByProbability;
};
// The weights of a token's kept routes add up to 1.
Routes GateTopK(const at::Tensor& logits, const TopKOptions& options);

// Makes Gumbel noise from uniform numbers in [0, 1). The largest sum of logit and noise is a draw
// from the softmax.
at::Tensor MakeGumbel(const at::Tensor& uniform);

// Multiplies x by numbers in [1 - epsilon, 1 + epsilon), computed from `uniform` in [0, 1) with x's
// shape.
at::Tensor Jitter(const at::Tensor& x, const at::Tensor& uniform, double epsilon);

// Returns the mean of the squared logarithm of the softmax's denominator, which keeps logits small
// (Zoph et al. 2022). A scalar.
at::Tensor LogitLoss(const at::Tensor& logits);

}  // namespace ds::moe
