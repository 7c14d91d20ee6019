#pragma once

// LmLoss: vocabulary projection and cross entropy in one step, without materialising all logits.
//
// The loss is computed in chunks of rows. In the forward pass a chunk's logits are computed,
// overwritten with their own gradient, and multiplied out into the gradients of `hidden` and
// `weight`. Only those gradients are kept for backward, which scales them. Memory: one chunk of
// logits (about the size of `weight`) and, if `weight` needs it, its gradient; never [tokens,
// vocabulary]. If ranks shard the vocabulary, they exchange three numbers per row of every chunk,
// and each keeps the gradients of its own part. Logits have the parameters' dtype, the softmax is
// fp32, and 16-bit weight gradients are summed over chunks in fp32.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "runtime/models/batch.h"
#include "runtime/parallel/tensor/group.h"

namespace ds::models {

inline constexpr std::int64_t kIgnoredLabel = -100;

// Counts the labels that are not kIgnoredLabel.
std::int64_t CountLabels(const at::Tensor& labels);

// Returns the number and range of those labels. Waits once for the labels' device.
LabelRange MeasureLabels(const at::Tensor& labels);

// The part of a vocabulary of `all` tokens that `weight` has on this rank; it starts at `first`.
// The ranks of `group` shard the vocabulary in rank order.
struct VocabularyShard {
  // If it has one rank, `weight` is the full vocabulary and the other fields are ignored.
  tensor_parallel::TensorGroup group = {};
  std::int64_t first = 0, all = 0;
};

struct LmLossOptions {
  double soft_cap = 0.0;  // c in c tanh(logit / c); 0: none
  // The expected gradient of the loss in the backward pass. The gradients are computed with it, so
  // that they do not underflow in fp16 and need no second pass. Any other value is still correct.
  double expected_scale = 1.0;
  VocabularyShard vocabulary = {};
  // The range of the labels, if known; then the loss does not wait for their device again.
  std::optional<LabelRange> range = {};
  // Set to the number of counted labels that are the most likely token; null: not computed.
  std::int64_t* hits = nullptr;
};

// Returns the mean of -log softmax(hidden · weightᵀ)[label] over all labels except kIgnoredLabel,
// an fp32 scalar; 0 if there are none. hidden [..., H], weight [V, H], labels [...] int64, already
// shifted. The gradient of `hidden` covers only this rank's part of the vocabulary.
//
// The backward pass may run only once. Throws c10::Error that names the position of a label outside
// [0, V).
at::Tensor LmLoss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const LmLossOptions& options = {});

// Labels for softmax cross entropy of a block of logits, row by row, in place.
struct RowLabels {
  at::Tensor ids;            // [R] int64; each is `ignored` or a column of the logits
  std::int64_t ignored = 0;  // rows with this label have loss 0 and gradient 0
};

// Sets losses[r] (fp32, [R], contiguous) to -log softmax(logits[r])[label r]. If `gradient_scale`
// != 0, also overwrites `logits` ([R, V], contiguous on the CPU) with gradient_scale *
// (softmax(logits[r]) - onehot(label r)); otherwise `logits` is undefined afterwards. Computes in
// fp32. Works on any device; fp32 and bf16 on the CPU use a fused loop.
void CrossEntropyRows(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                      at::Tensor* losses);

// Same for rows with columns that several ranks share. Labels index the full vocabulary, and the
// losses are those of full rows, on all ranks. Collective: all ranks of part.group call it.
void CrossEntropyShardRows(at::Tensor& logits, const RowLabels& labels, const VocabularyShard& part,
                           double gradient_scale, at::Tensor* losses);

// Counts the rows with a label that is not ignored and has the row's largest logit (the first one
// on ties). Collective if ranks share the rows.
std::int64_t CountHits(const at::Tensor& logits, const RowLabels& labels,
                       const VocabularyShard& part);

// Same as CrossEntropyRows, with LibTorch operators. Used for other devices and dtypes, and as the
// reference in tests.
void CrossEntropyRowsByOperators(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                                 at::Tensor* losses);

}  // namespace ds::models
