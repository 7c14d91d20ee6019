#pragma once

// RingAttention: causal attention over samples whose tokens lie in parts on the ranks of a ring
// (Liu et al. 2023, arXiv 2310.01889; called context parallelism elsewhere). Each rank keeps its
// queries; keys and values go from rank to rank while they are computed with, and what each block
// of them gives is put together by the logarithms of its sums. In the backward pass they go round
// again, and their gradients, in fp32, one place behind them, until they are home.
//
// A token sees those before it, so each rank has one stretch of the front half of a sample and the
// one as far from its end (FindTokens): all ranks then compute alike at every place of the ring.

#include <ATen/core/Tensor.h>

#include "runtime/parallel/sequence/attention_block.h"
#include "runtime/parallel/sequence/group.h"

namespace ds::sequence_parallel {

// q [B, heads, own tokens, width], k and v [B, their heads, own tokens, width], of which each is
// shared by as many heads of the queries -> [B, heads, own tokens, width] of q's dtype.
// Differentiable; keeps what it was given, what it returns, and one fp32 number of each query and
// head. The rule's places are those of the whole sample. By LibTorch's fused kernels on the CPU
// where the rule is a scale alone, else by operators.
//
// Requires a group of more than one rank, of kind kRing. Collective, and so is the backward pass:
// the same calls in the same order on all ranks. Threads: that of the pass. The group and what the
// rule refers to outlive the graph.
at::Tensor RingAttention(const Group& ranks, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const AttentionRule& rule);

}  // namespace ds::sequence_parallel
