#pragma once

// CountBiasBytes: what attention with windows, distances or documents adds to its scores. Pure.

#include <cstdint>

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Counts what is added to the scores of attention with windows, distances or documents, which all
// layers share: it is there from the first forward pass on. Requires CheckMemoryIsKnown
// (known_memory.h).
std::int64_t CountBiasBytes(const DecoderSpec& spec, const MicroBatch& batch);

}  // namespace ds::models
