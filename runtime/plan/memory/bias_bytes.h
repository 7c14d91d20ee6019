#pragma once

// CountBiasBytes: the size of the attention bias of windows, ALiBi and documents. Pure.

#include <cstdint>

#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Counts the bytes added to the attention scores for windows, distances or documents. All layers
// share them; they exist from the first forward pass on. Requires CheckMemoryIsKnown
// (known_memory.h).
std::int64_t CountBiasBytes(const DecoderSpec& spec, const MicroBatch& batch);

}  // namespace ds::models
