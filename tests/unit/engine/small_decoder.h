#pragma once

// A GPT-2 of so many small layers, for plans.

#include <cstdint>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

inline models::DecoderSpec MakeSmallDecoder(std::int64_t layers) {
  return {.vocabulary = 500,
          .width = 128,
          .layers = layers,
          .heads = 4,
          .kv_heads = 4,
          .head_width = 32,
          .mlp_width = 512,
          .max_positions = 64,
          .positions = models::Positions::kLearned,
          .norm = models::NormKind::kLayer,
          .gated_mlp = false,
          .activation = models::Activation::kGeluTanh,
          .tied_head = true};
}

}  // namespace ds::engine
