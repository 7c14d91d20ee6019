#pragma once

// Batch: the tensors of one micro-batch by name. The first dimension of each counts samples.
//
// Those of language models, for B samples of S tokens:
//
//   tokens     [B, S] int64 ids
//   labels     [B, S] int64, already shifted: labels[b, s] follows tokens[b, s]
//   mask       [B, S] of any dtype: where it is 0 a label does not count
//   documents  [B, S] integers: a token sees only those of its own document, which lie side by side
//              in a packed sample; padding is a document of its own
//   positions  [B, S] int64; absent, they count from the first token of each document
//
// A model takes what it knows and refuses the rest by name; a user's own model names what it likes.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace ds::models {

using Batch = std::map<std::string, at::Tensor, std::less<>>;

// The labels that count in numbers: none of them is less than `least` or more than `most`, of which
// one is 0 where no label is as small, or as large.
struct LabelRange {
  std::int64_t count = 0, least = 0, most = 0;
};

// Labels that have been measured, by who had them on the host.
struct MeasuredLabels {
  at::Tensor labels;  // the very tensor of the batch; another one, as a part of it, is not measured
  LabelRange range;
};

// The tensor with this name; an undefined one where there is none.
const at::Tensor& FindTensor(const Batch& batch, std::string_view name);

std::int64_t CountSamples(const Batch& batch);

// Throws c10::Error naming the first tensor that is none of these.
void CheckNames(const Batch& batch, std::span<const std::string_view> known);

}  // namespace ds::models
