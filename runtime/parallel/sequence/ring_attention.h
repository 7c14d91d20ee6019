#pragma once

// RingAttention computes causal attention over samples with tokens split among the ranks of a ring
// (Liu et al. 2023, arXiv 2310.01889; also called context parallelism). Each rank keeps its
// queries. Keys and values are sent from rank to rank during the computation, and results of the
// blocks are combined by their log-sum-exp. In the backward pass keys and values circulate again.
// Their gradients, in fp32, follow one step later until they reach their owners.
//
// A token only sees earlier tokens. So each rank has one range of the first half of a sample and
// the range at the same distance from its end (FindTokens): all ranks then have equal work in every
// step of the ring.

#include <ATen/core/Tensor.h>

#include "runtime/device/kernels/attention_block.h"
#include "runtime/parallel/sequence/group.h"

namespace ds::sequence_parallel {

// q [B, heads, own tokens, width], k and v [B, their heads, own tokens, width] -> [B, heads, own
// tokens, width] in q's dtype. Each head of k and v is shared by equally many query heads.
// Differentiable; saves its inputs, its result, and one fp32 number per query and head. The rule's
// positions are positions in the full sample. Uses LibTorch's fused kernels on the CPU if the rule
// is a scale only, else operators.
//
// Requires a group of more than one rank, of kind kRing. Collective, and so is the backward pass:
// the same calls in the same order on all ranks. Threads: the thread of the pass. The group and the
// objects that the rule refers to must outlive the graph.
at::Tensor RingAttention(const SequenceGroup& ranks, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const kernels::AttentionRule& rule);

}  // namespace ds::sequence_parallel
