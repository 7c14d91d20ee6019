#pragma once

// CountParameters: how many parameters a decoder has, without building it.

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/models/spec/decoder_spec.h"

namespace ds::models {

struct ParameterCount {
  std::int64_t all = 0;
  // The most that one module of transformers' holds itself, not counting the modules inside it.
  std::int64_t largest_module = 0;
};

// The counts of what transformers builds. An error above 1e15 parameters.
StatusOr<ParameterCount> CountParameters(const DecoderSpec& spec);

}  // namespace ds::models
