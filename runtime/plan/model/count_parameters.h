#pragma once

// CountParameters and CountBlocks count the parameters of a decoder without building it.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct ParameterCount {
  std::int64_t all = 0;
  // The most that one module of transformers' holds itself, not counting the modules inside it.
  std::int64_t largest_module = 0;
};

// The counts of what transformers builds. An error above 1e15 parameters.
StatusOr<ParameterCount> CountParameters(const DecoderSpec& spec);

struct BlockCount {
  const char* name;  // of the class in runtime/models
  std::int64_t parameters = 0;
};

// Lists the blocks in their order; of a tied head's matrix the embedding's block has it.
StatusOr<std::vector<BlockCount>> CountBlocks(const DecoderSpec& spec);

}  // namespace ds::models
