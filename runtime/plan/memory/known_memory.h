#pragma once

// These functions check a model before its memory is counted (decoder_memory.h). Pure.

#include "runtime/base/status.h"
#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// OK if the activations of such a decoder can be predicted. The error names the unsupported
// feature.
Status CheckMemoryIsKnown(const DecoderSpec& spec);

// OK if no sum of a micro-batch's bytes, or of the model's, overflows 64 bits. The error names the
// figure.
Status CheckCountable(const DecoderSpec& spec, const MicroBatch& batch);

}  // namespace ds::models
