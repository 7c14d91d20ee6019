#pragma once

// Rotary position embedding in transformers' layout: the two halves of a head are the coordinates
// that are rotated.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/models/batch.h"
#include "runtime/plan/model/rope_spec.h"

namespace ds::models {

// Rotates x [B, heads, S, head width], of any strides: position s by the angles whose cos and sin
// are row s of [S, half], or of the sample's row in [B, S, half]. If 2 half is less than the head
// width, the remaining elements are unchanged. Differentiable in x; keeps only cos and sin.
at::Tensor ApplyRotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// RotaryAngles: caches the cos and sin tables of a micro-batch. One object serves all layers of a
// model with the same rotation. It keeps the latest tables.

class RotaryAngles {
 public:
  RotaryAngles(const RopeSpec& rope, std::int64_t head_width)
      : rope_(rope), head_width_(head_width) {}

  // Returns `x` [B, heads, S, head width] of this batch with every token's heads rotated by its
  // position. Angles that depend on the sequence length use the `longest` document
  // (Bundle::longest_document), as in transformers.
  at::Tensor Rotate(const at::Tensor& x, const Batch& batch, std::int64_t longest);
  // Same, if `x` has only S of the batch's `tokens` tokens, starting at `first`.
  at::Tensor Rotate(const at::Tensor& x, const Batch& batch, std::int64_t longest,
                    std::int64_t first, std::int64_t tokens);

 private:
  // Computes cos_ and sin_, [tokens, half] or [B, tokens, half], unless they are up to date.
  void Prepare(const at::Tensor& x, const Batch& batch, std::int64_t longest, std::int64_t tokens);

  std::vector<float> FindFrequencies(const at::Tensor& positions, bool are_counted) const;

  RopeSpec rope_;
  std::int64_t head_width_;
  // The inputs of the tables. They are kept alive so that no other tensor can get their addresses.
  at::Tensor positions_, documents_;
  std::int64_t tokens_ = 0, longest_ = 0;
  at::Tensor cos_, sin_;
};

}  // namespace ds::models
