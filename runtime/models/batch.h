#pragma once

// Batch: the tensors of one micro-batch by name. The first dimension of each tensor is the sample.
//
// Tensors of language models, for B samples of S tokens:
//
//   tokens     [B, S] int64 ids
//   labels     [B, S] int64, already shifted: labels[b, s] follows tokens[b, s]
//   mask       [B, S] of any dtype: labels at positions where it is 0 are ignored. Their tokens are
//              tokens: experts process them, and their balance counts them
//   valid      [B, S] bool: false for padding, which no expert processes or counts
//   documents  [B, S] integer document ids: a token attends only to tokens of its own document.
//              Documents are contiguous in a packed sample; padding is a document of its own
//   positions  [B, S] int64; if absent, positions count from the first token of each document
//
// Tensors do not change after they are given: models keep what they have computed of one.
//
// A model rejects, by name, a tensor that it does not use. A user's own model may define others.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace ds::models {

using Batch = std::map<std::string, at::Tensor, std::less<>>;

// The number of labels that are not ignored, and bounds on them: each such label is in [least,
// most]. A bound may be 0 although no label is that small or that large.
struct LabelRange {
  std::int64_t count = 0, least = 0, most = 0;
};

// Labels with a range that is already known, because the caller had them on the host.
struct MeasuredLabels {
  // The batch's own tensor object; a different tensor, such as a slice of it, does not match.
  at::Tensor labels;
  LabelRange range;
};

// Returns the tensor with this name, or an undefined tensor if there is none.
const at::Tensor& FindTensor(const Batch& batch, std::string_view name);

std::int64_t CountSamples(const Batch& batch);

// Throws c10::Error that names the first tensor that is not in `known`.
void CheckNames(const Batch& batch, std::span<const std::string_view> known);

}  // namespace ds::models
