#pragma once

// LatentValues: the elements per token of attention with latent keys and values
// (QkvLayout::kLatent, models/decoder/decoder_attention.h). Pure.

#include <cstdint>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct LatentValues {
  std::int64_t heads = 0;    // of the queries, or the keys, of all heads
  std::int64_t wide = 0;     // the up-projection from which keys and values are split
  std::int64_t mixed = 0;    // values of all heads
  std::int64_t narrow = 0;   // kept for the narrow rows and their norms
  int norms = 0;             // each keeps one fp32 number
  std::int64_t delayed = 0;  // kept for delayed gradients of the projections before the heads
  // Values are padded to the keys' width, and the result, equally wide, is truncated.
  bool pads() const { return mixed < heads; }

  // Returns the elements kept by attention: queries, keys, values and results, or their sources.
  std::int64_t KeptOfHeads(bool recomputes) const {
    if (recomputes) return 2 * heads + wide + mixed;
    return pads() ? 4 * heads + mixed : 2 * heads + wide + mixed;
  }
};

LatentValues CountLatentValues(const DecoderSpec& spec);

}  // namespace ds::models
