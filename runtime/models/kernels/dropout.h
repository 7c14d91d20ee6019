#pragma once

// Dropout with position-dependent random numbers. A draw depends only on the element's position in
// the model and in the step. It does not depend on ranks, stages, micro-batches, how sequences or
// heads are split, or how often a block runs: recomputation draws the same numbers.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

namespace ds::models {

// The position of a micro-batch's elements among all draws of a run.
struct RandomPosition {
  std::uint64_t key = 0;            // derived from (seed, step)
  std::int64_t first_sample = 0;    // the micro-batch's first sample, in the step
  std::int64_t first_head = 0;      // this rank's first head, in the model
  std::int64_t first_position = 0;  // this rank's first position, in the samples
  // The rank's positions form runs of `stretch` positions; each run starts `stride` after the start
  // of the previous one. Exception: the last run, after `before_last` positions, starts at
  // `last_position`.
  std::int64_t stretch = std::numeric_limits<std::int64_t>::max(), stride = 0;
  std::int64_t before_last = std::numeric_limits<std::int64_t>::max(), last_position = 0;
  std::int64_t first_column = 0;  // the first column, if the rows are parts of longer ones
  int block = 0;                  // index in the model's list

  // Returns the position in the sample of the rank's position `i`.
  std::int64_t PositionOf(std::int64_t i) const {
    return i < before_last ? first_position + i / stretch * stride + i % stretch
                           : last_position + i - before_last;
  }
  // Returns the same origin, but with contiguous positions that start at `position`.
  RandomPosition StandingAt(std::int64_t position) const {
    RandomPosition origin{.key = key, .first_sample = first_sample, .first_head = first_head};
    origin.first_position = position;
    origin.block = block;
    return origin;
  }
};

// The sites of a block that use dropout or noise. The values must never change.
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
  RandomPosition origin;
  DropoutSite site = DropoutSite::kEmbedding;
};

// Returns x with each element zeroed with the given probability and the others divided by 1 -
// probability. Returns x itself if the probability is 0. x is [samples, positions, width] or, for
// attention weights, [samples, heads, positions, keys]. Columns start at
// RandomPosition::first_column.
at::Tensor Dropout(const at::Tensor& x, const DropoutDraw& draw);

// Returns the factors that Dropout multiplies by, 0 or 1 / (1 - probability), in the dtype and on
// the device of `options`. The first function uses a loop on the CPU and the second function
// elsewhere. The second uses LibTorch operators and gives the same values on any device.
at::Tensor DropoutFactors(at::IntArrayRef shape, const DropoutDraw& draw,
                          const at::TensorOptions& options);
at::Tensor DropoutFactorsByOperators(at::IntArrayRef shape, const DropoutDraw& draw,
                                     const at::TensorOptions& options);

// Returns uniform random numbers in (-range, range), drawn by the same rules; draw.probability is
// ignored. The second function gives the same values on any device.
at::Tensor UniformNoise(at::IntArrayRef shape, const DropoutDraw& draw, double range,
                        const at::TensorOptions& options);
at::Tensor UniformNoiseByOperators(at::IntArrayRef shape, const DropoutDraw& draw, double range,
                                   const at::TensorOptions& options);

}  // namespace ds::models
