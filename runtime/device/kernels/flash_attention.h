#pragma once

// FlashAttention: attention by LibTorch's kernels for GPUs (FlashAttention-2; Dao 2023, arXiv
// 2307.08691), which take documents as cumulative lengths, and windows, as arguments.

#include <ATen/core/Tensor.h>

#include "runtime/device/kernels/attention_rule.h"

namespace ds::kernels {

// Returns whether the kernels take these queries and this rule: on a GPU, bf16 or fp16, heads of at
// most 256 values; documents and a window, but no soft cap, terms or factors.
// Older GPUs than Ampere have no such kernels.
bool TakesFlashAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionRule& rule);

// As Attend (attention.h), with values as wide as keys. Requires TakesFlashAttention.
at::Tensor FlashAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionRule& rule);

}  // namespace ds::kernels
