#pragma once

// CountExpertBytes: the activations of a layer's experts for a micro-batch, with or without expert
// parallelism. No token is dropped and nothing is padded, so a rank with popular experts holds more
// (MicroBatch::expert_load). Pure. A test compares it with measurements of ranks
// (tests/e2e/planned_experts_test.cc).

#include <cstdint>

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Bytes on this rank.
struct ExpertBytes {
  std::int64_t saved = 0;        // by the forward pass, for the backward pass
  std::int64_t temporaries = 0;  // peak in either pass, in addition to `saved`
  std::int64_t passing = 0;      // rows and results, in a forward pass that keeps nothing
  std::int64_t delayed = 0;      // for the gradients of the experts' weights
};

// Requires a layer with experts.
ExpertBytes CountExpertBytes(const DecoderSpec& spec, const MicroBatch& batch);

// Returns the largest possible load of one rank's experts, relative to their even share: all tokens
// send it as many of their routes as it has experts for.
double MostExpertLoad(const DecoderSpec& spec, int expert_ranks);

}  // namespace ds::models
