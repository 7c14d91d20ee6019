#pragma once

// Two checks of a model stand before its memory is counted (decoder_memory.h). Pure.

#include "runtime/base/status.h"
#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// OK where it is known what such a decoder keeps of a micro-batch. The error names what is not.
Status CheckMemoryIsKnown(const DecoderSpec& spec);

// OK where no sum of a micro-batch's bytes, or of the model's, leaves 64 bits. The error names the
// figure.
Status CheckCountable(const DecoderSpec& spec, const MicroBatch& batch);

}  // namespace ds::models
