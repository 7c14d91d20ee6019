#pragma once

// Softmax cross entropy of a block of logits, each row on its own, in place.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ds::models {

struct RowLabels {
  at::Tensor ids;            // [R] int64; each is `ignored` or a column of the logits
  std::int64_t ignored = 0;  // rows with this label have loss 0 and gradient 0
};

// Sets losses[r] (fp32, [R], contiguous) to -log softmax(logits[r])[label r]. With
// `gradient_scale` != 0 also overwrites `logits` ([R, V], contiguous) by
// gradient_scale * (softmax(logits[r]) - onehot(label r)); otherwise their content is undefined
// afterwards. Computes in fp32. Any device; fp32 and bf16 on the CPU take a fused loop.
void CrossEntropyRows(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                      at::Tensor* losses);

// The same by LibTorch's operators: what other devices and dtypes use, and the reference in tests.
void CrossEntropyRowsByOperators(at::Tensor& logits, const RowLabels& labels, double gradient_scale,
                                 at::Tensor* losses);

}  // namespace ds::models
