#pragma once

// Dropout whose draws depend on where an element stands in the model and in the step, and on
// nothing else: not on ranks, stages, micro-batches, the cut of sequences or heads, or on how often
// a block runs (a block that is computed again draws the same).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

namespace ds::models {

// Tells where the elements of a micro-batch stand among all draws of a run.
struct RandomPlace {
  std::uint64_t key = 0;            // of (seed, step)
  std::int64_t first_sample = 0;    // of this micro-batch, among the samples of the step
  std::int64_t first_head = 0;      // of this rank, among the model's
  std::int64_t first_position = 0;  // of this rank, in the samples
  // The rank's positions come in stretches of so many, each of which begins `stride` behind the one
  // before it; but the last one, behind `before_last` positions, begins at `last_position`.
  std::int64_t stretch = std::numeric_limits<std::int64_t>::max(), stride = 0;
  std::int64_t before_last = std::numeric_limits<std::int64_t>::max(), last_position = 0;
  std::int64_t first_column = 0;  // of this rank, of rows that ranks have between them
  int block = 0;                  // in the model's list

  // Tells where the rank's position `i` stands in the sample.
  std::int64_t PositionOf(std::int64_t i) const {
    return i < before_last ? first_position + i / stretch * stride + i % stretch
                           : last_position + i - before_last;
  }
  // The same, but of positions side by side from this one on.
  RandomPlace StandingAt(std::int64_t position) const {
    RandomPlace place{.key = key, .first_sample = first_sample, .first_head = first_head};
    place.first_position = position;
    place.block = block;
    return place;
  }
};

// The places of a block where something is dropped. Fixed for ever.
enum class DropoutSite {
  kEmbedding,
  kAttention,
  kAttentionOutput,
  kMlpOutput,
  kEmbeddingNoise,
  kRouterInput,
  kExpertChoice,
  kExpertSelection,
  kAdapterInput
};

struct DropoutDraw {
  double probability = 0.0;
  RandomPlace place;
  DropoutSite site = DropoutSite::kEmbedding;
};

// x with each element zeroed with the probability and the rest scaled up by its complement; x
// itself when the probability is 0. x is [samples, positions, width], or, of attention weights,
// [samples, heads, positions, keys]: keys are never cut, and width where the place says so.
at::Tensor Dropout(const at::Tensor& x, const DropoutDraw& draw);

// Makes what Dropout multiplies by: 0, or 1 over the complement, in the dtype and on the device of
// `options`. On the CPU it is drawn by a loop, elsewhere by the operators of the second function,
// which gives the same values anywhere.
at::Tensor DropoutFactors(at::IntArrayRef shape, const DropoutDraw& draw,
                          const at::TensorOptions& options);
at::Tensor DropoutFactorsByOperators(at::IntArrayRef shape, const DropoutDraw& draw,
                                     const at::TensorOptions& options);

// Draws numbers of the range (-range, range), all as likely, by the same rules; the draw's
// probability does not count. The second function gives the same values anywhere.
at::Tensor UniformNoise(at::IntArrayRef shape, const DropoutDraw& draw, double range,
                        const at::TensorOptions& options);
at::Tensor UniformNoiseByOperators(at::IntArrayRef shape, const DropoutDraw& draw, double range,
                                   const at::TensorOptions& options);

}  // namespace ds::models
