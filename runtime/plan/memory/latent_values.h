#pragma once

// LatentValues: what attention whose keys and values come from narrow rows (QkvLayout::kLatent,
// models/decoder/decoder_attention.h) makes of a token, in elements. Pure.

#include <cstdint>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct LatentValues {
  std::int64_t heads = 0;    // queries, or keys, of all heads
  std::int64_t wide = 0;     // what keys and values are cut from
  std::int64_t mixed = 0;    // values of all heads
  std::int64_t narrow = 0;   // kept of the narrow rows, and of their norms
  int norms = 0;             // that keep an fp32 number each
  std::int64_t delayed = 0;  // of products in front of the heads, where their gradients come later
  // Values are padded to the keys' width, and a result as wide is cut.
  bool pads() const { return mixed < heads; }

  // Kept by attention: queries, keys, values and results; or what these come from.
  std::int64_t KeptOfHeads(bool recomputes) const {
    if (recomputes) return 2 * heads + wide + mixed;
    return pads() ? 4 * heads + mixed : 2 * heads + wide + mixed;
  }
};

LatentValues CountLatentValues(const DecoderSpec& spec);

}  // namespace ds::models
