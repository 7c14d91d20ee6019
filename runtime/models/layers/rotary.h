#pragma once

// Rotary position embedding in transformers' layout: the two halves of a head are the coordinates
// that are turned.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/models/batch.h"
#include "runtime/plan/model/rope_spec.h"

namespace ds::models {

// x [B, heads, S, head width], whatever its strides, with position s turned by the angles whose cos
// and sin are row s of [S, half], or of the sample's in [B, S, half]. Where 2 half is less than the
// head's width, what is behind stays as it is. Differentiable in x; keeps cos and sin only.
at::Tensor ApplyRotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// RotaryAngles: the cosines and sines that turn the heads of a micro-batch, one for all layers of a
// model that turn alike. It keeps the last ones it made.

class RotaryAngles {
 public:
  RotaryAngles(const RopeSpec& rope, std::int64_t head_width)
      : rope_(rope), head_width_(head_width) {}

  // `x` [B, heads, S, head width] of this batch with the heads of each token turned by its
  // position. Angles that follow the length of a sequence follow the `longest` document
  // (Bundle::longest_document), as in transformers.
  at::Tensor Turn(const at::Tensor& x, const Batch& batch, std::int64_t longest);
  // The same, where `x` has S of the batch's `tokens` tokens, from `first` on.
  at::Tensor Turn(const at::Tensor& x, const Batch& batch, std::int64_t longest, std::int64_t first,
                  std::int64_t tokens);

 private:
  // Makes cos_ and sin_, [tokens, half] or [B, tokens, half], unless they are there.
  void Prepare(const at::Tensor& x, const Batch& batch, std::int64_t longest, std::int64_t tokens);

  std::vector<float> FindFrequencies(const at::Tensor& positions, bool are_counted) const;

  RopeSpec rope_;
  std::int64_t head_width_;
  // The tables were made of these, which are held so that no other tensor has their addresses.
  at::Tensor positions_, documents_;
  std::int64_t tokens_ = 0, longest_ = 0;
  at::Tensor cos_, sin_;
};

}  // namespace ds::models
