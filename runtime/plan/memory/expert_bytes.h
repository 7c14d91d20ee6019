#pragma once

// CountExpertBytes: what a layer's experts hold of a micro-batch, which ranks have between them or
// each has all of. Nothing is dropped and nothing padded, so that a rank whose experts most tokens
// go to holds more (MicroBatch::expert_load). Pure; tests hold it to what ranks measure
// (tests/e2e/planned_experts_test.cc).

#include <cstdint>

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Bytes, of this rank.
struct ExpertBytes {
  std::int64_t kept = 0;     // from the forward pass for the backward pass
  std::int64_t beside = 0;   // in either pass at the most, beside what is kept
  std::int64_t passing = 0;  // rows and results, in a forward pass that keeps nothing
  std::int64_t delayed = 0;  // for the gradients of the experts' weights
};

// Requires a layer that has experts.
ExpertBytes CountExpertBytes(const DecoderSpec& spec, const MicroBatch& batch);

// The most rows that can come to the experts of one of so many ranks, over their even share: all
// tokens send to them as many of their routes as these experts can have.
double MostExpertLoad(const DecoderSpec& spec, int expert_ranks);

}  // namespace ds::models
