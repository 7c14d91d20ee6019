#pragma once

// AttendInChunks computes the attention part of a layer, from its input to its contribution to
// the residual, on one chunk (FPDT) of a sample's tokens at a time (Yao et al. 2024, arXiv
// 2408.16978). At most one chunk's queries, keys and values are resident. Keys, values and tensors
// saved for the backward pass are stored through a Keeper; those in files are prefetched one chunk
// ahead. Results over the keys of several chunks are combined by their log-sum-exp.
//
// The backward pass goes from the last chunk to the first. For each it computes the gradients of
// the output projection, of attention to its own and earlier keys, and of the input projections.
// Both projections are recomputed. Gradients of earlier chunks' keys and values accumulate in fp32
// in the Keeper.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "runtime/autograd/keeper.h"
#include "runtime/device/kernels/attention_block.h"
#include "runtime/plan/sequence/chunk_plan.h"

namespace ds::sequence_parallel {

struct SequenceChunk {
  TokenRange all;  // in the sample
  TokenRange own;  // among this rank's tokens
};

// Returns the chunks of samples of `tokens` tokens that `ranks` ranks share. Each rank has a range
// of each chunk (FindTokens).
std::vector<SequenceChunk> ListChunks(std::int64_t tokens, std::int64_t chunk, int ranks);

// The layer's functions for one chunk. Each may be called twice. They must outlive the graph.
struct ChunkFunctions {
  // x [B, own tokens, width], dense, so that no product needs its own copy -> queries [B, heads,
  // all tokens, w], keys and values [B, their heads, all tokens, w], as RingAttention takes them:
  // rotated by position, exchanged among ranks.
  std::function<kernels::Qkv(const at::Tensor& x, const SequenceChunk& chunk)> project;
  // Attention's values [B, heads, all tokens, w] -> the layer's contribution, [B, own tokens,
  // width].
  std::function<at::Tensor(const at::Tensor& mixed, const SequenceChunk& chunk)> finish;
};

struct ChunkedAttentionOptions {
  // The functions read parameters that need gradients.
  bool trains = false;
  const activation::Keeper* keeper = nullptr;  // must outlive the graph; null: on the device
};

// x [B, own tokens, width] -> [B, own tokens, width]. Differentiable once. The rule's positions are
// positions in the sample. Collective if the functions are, forward and backward: the same calls in
// the same order on all ranks. Threads: the thread of the pass.
at::Tensor AttendInChunks(const at::Tensor& x, const std::vector<SequenceChunk>& chunks,
                          const ChunkFunctions& parts, const kernels::AttentionRule& rule,
                          const ChunkedAttentionOptions& options);

}  // namespace ds::sequence_parallel
