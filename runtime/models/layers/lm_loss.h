#pragma once

// Vocabulary projection and cross entropy in one, without ever holding all logits.
//
// Tokens are taken in chunks of rows: a chunk's logits are computed, turned in place into their own
// gradient and multiplied out into the gradients of `hidden` and `weight` at once, in the forward
// pass. Only those gradients are kept for backward, which scales them. Memory: one chunk of logits
// (about the size of `weight`) and, when `weight` needs it, its gradient; never [tokens,
// vocabulary]. Where ranks have the vocabulary between them they tell each other of every chunk
// three numbers a row, and each keeps the gradients that its own part gives. Logits have the
// parameters' dtype, the softmax is fp32, and 16-bit weight gradients are summed over chunks in
// fp32.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "runtime/models/batch.h"
#include "runtime/parallel/tensor/group.h"

namespace ds::models {

inline constexpr std::int64_t kIgnoredLabel = -100;

// Counts the labels that are not kIgnoredLabel.
std::int64_t CountLabels(const at::Tensor& labels);

// Measures those labels. All of it comes from the labels' device at once, which the caller waits
// for.
LabelRange MeasureLabels(const at::Tensor& labels);

// The part of a vocabulary of `all` tokens, from `first` on, that `weight` has here; the ranks of
// `group` have all of it between them, in their order.
struct VocabularyPart {
  tensor_parallel::Group group = {};  // of one rank: `weight` has all of it, whatever stands here
  std::int64_t first = 0, all = 0;
};

struct LmLossOptions {
  double soft_cap = 0.0;  // c in c tanh(logit / c); 0: none
  // The gradient of the loss that backward is expected to bring: the gradients are computed with
  // it, so that they neither vanish in fp16 nor need another pass. Any other one is right, too.
  double expected_scale = 1.0;
  VocabularyPart vocabulary = {};
  // The labels', if it has been measured: nobody has to wait for their device once more.
  std::optional<LabelRange> range = {};
  // Is told how many of the labels that count are the most likely tokens; null: nobody asks.
  std::int64_t* hits = nullptr;
};

// The mean of -log softmax(hidden · weightᵀ)[label] over all labels that are not kIgnoredLabel, an
// fp32 scalar; 0 where there are none. hidden [..., H], weight [V, H], labels [...] int64, already
// shifted. The gradient of `hidden` is what this rank's part of the vocabulary gives.
//
// Its backward may run once. Throws c10::Error naming the position of a label outside [0, V).
at::Tensor LmLoss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const LmLossOptions& options = {});

// Softmax cross entropy of a block of logits, each row on its own, in place.
struct RowLabels {
  at::Tensor ids;            // [R] int64; each is `ignored` or a column of the logits
  std::int64_t ignored = 0;  // rows with this label have loss 0 and gradient 0
};

// Sets losses[r] (fp32, [R], contiguous) to -log softmax(logits[r])[label r]. With
// `gradient_scale` != 0 also overwrites `logits` ([R, V], on the CPU contiguous) by
// gradient_scale * (softmax(logits[r]) - onehot(label r)); otherwise their content is undefined
// afterwards. Computes in fp32. Any device; fp32 and bf16 on the CPU take a fused loop.
void CrossEntropyRows(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                      at::Tensor* losses);

// The same of rows whose other columns other ranks have: labels are of the whole vocabulary, and
// the losses are of whole rows, on all ranks. Collective.
void CrossEntropyRowsOfPart(at::Tensor& logits, const RowLabels& labels, const VocabularyPart& part,
                            double gradient_scale, at::Tensor* losses);

// Counts the rows whose label, if it is not ignored, has the largest of their logits; the first of
// several that are as large. Collective where ranks have the rows between them.
std::int64_t CountHits(const at::Tensor& logits, const RowLabels& labels,
                       const VocabularyPart& part);

// The same as CrossEntropyRows by LibTorch's operators: what other devices and dtypes use, and the
// reference in tests.
void CrossEntropyRowsByOperators(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                                 at::Tensor* losses);

}  // namespace ds::models
