#pragma once

// Attend computes attention over full samples by a rule, block by block: only blocks that the rule
// lets see one another are computed, and nothing of the size tokens x tokens exists. So documents
// and windows make attention cheaper, and its memory is linear in the length of the samples.
//
// Each document is attended to by itself, in one call of LibTorch's fused kernel where the device
// has one for the rule: on the CPU all rules without a soft cap and factors; on a GPU documents and
// windows in 16 bits (FlashAttention-2; Dao 2023, arXiv 2307.08691). Other rules use operators on
// tiles of scores. The backward pass computes the scores again.
//
// Threads: the thread of the pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/device/kernels/attention_rule.h"

namespace ds::kernels {

// q [B, heads, S, width], k and v [B, their heads, S, width or, of v, value width] -> [B, heads, S,
// value width], contiguous with heads and tokens exchanged if values are as wide as keys. Each head
// of k and v is shared by a run of neighbouring query heads. Under autocast computes in its dtype.
// Differentiable once; saves its inputs, its result and one fp32 number per query and head. Throws
// c10::Error if the rule's documents or terms do not have the samples and tokens of q.
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionRule& rule);

// Queries, and the blocks of keys that they attend to. Results of several blocks are merged.
struct QueryBlocks {
  TokenRange samples, queries;
  std::vector<TokenRange> keys;
};

enum class BlockKernel {
  kWhole,   // documents in one piece, unless a window hides some of their tokens
  kTerms,   // pieces of documents; without a window, a piece and all keys before it
  kByRule,  // pieces of documents
};

// Returns the blocks of attention by this rule over samples of `tokens` tokens, as a kernel takes
// them: each query is in exactly one element, and sees at least itself. Pure.
std::vector<QueryBlocks> ListBlocks(const AttentionRule& rule, BlockKernel kernel,
                                    std::int64_t samples, std::int64_t tokens);

}  // namespace ds::kernels
