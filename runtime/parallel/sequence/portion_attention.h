#pragma once

// AttendInPortions: the attention part of a layer, from its input to what it adds, on a portion of
// a sample's tokens at a time (FPDT: Yao et al. 2024, arXiv 2408.16978). Of a portion's queries,
// keys and values no more than one is there at once; keys, values and what the backward pass needs
// of a portion wait where a keeper keeps them; those in files are brought one portion ahead. What
// the keys of several portions give is put together by the logarithms of its sums.
//
// The backward pass goes from the last portion to the first, through all of a portion's part of the
// layer: that of what is behind attention, attention with its own keys and those before it, then
// that of the projections, both of which are computed again. Gradients of keys and values of
// earlier portions add up, in fp32, where these wait.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "runtime/autograd/keeper.h"
#include "runtime/parallel/sequence/attention_block.h"
#include "runtime/plan/sequence/portion_plan.h"

namespace ds::sequence_parallel {

struct Portion {
  TokenRange all;  // of the sample
  TokenRange own;  // of the tokens that this rank has
};

// The portions of samples of `tokens` tokens that `ranks` ranks have between them, each its stretch
// of each portion (FindTokens).
std::vector<Portion> ListPortions(std::int64_t tokens, std::int64_t portion, int ranks);

// These make what a layer makes of a portion; each may be called twice. They live as long as the
// graph.
struct PortionParts {
  // x [B, own tokens, width], dense, so that no product needs a copy of its own -> queries [B,
  // heads, all tokens, w], keys and values [B, their heads, all tokens, w], as RingAttention takes
  // them: turned by positions, exchanged among ranks.
  std::function<Qkv(const at::Tensor& x, const Portion& portion)> project;
  // Mixed values [B, heads, all tokens, w] -> what the layer adds, [B, own tokens, width].
  std::function<at::Tensor(const at::Tensor& mixed, const Portion& portion)> finish;
};

struct PortionOptions {
  // The pieces read parameters that need gradients.
  bool trains = false;
  const activation::Keeper* keeper = nullptr;  // outlives the graph; null: on the device
  // Tells of portions that may look at one another by the rule whether they do; empty: they do. It
  // is the same on all ranks of a group.
  LooksAt looks_at = {};
};

// x [B, own tokens, width] -> [B, own tokens, width]. Differentiable once. The rule's places are
// those of the sample. Collective where the pieces are, forward and backward: the same calls in the
// same order on all ranks. Threads: that of the pass.
at::Tensor AttendInPortions(const at::Tensor& x, const std::vector<Portion>& portions,
                            const PortionParts& parts, const AttentionRule& rule,
                            const PortionOptions& options);

}  // namespace ds::sequence_parallel
