#pragma once

// CountParameters and CountBlocks count the parameters of a decoder without building it.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct ParameterCount {
  std::int64_t all = 0;
  // The largest number of parameters that one module of transformers owns directly, without its
  // submodules.
  std::int64_t largest_module = 0;
};

// Counts the parameters of the model that transformers builds. Fails above 1e15 parameters.
StatusOr<ParameterCount> CountParameters(const DecoderSpec& spec);

struct BlockCount {
  const char* name;  // of the class in runtime/models
  std::int64_t parameters = 0;
};

// Lists the blocks in order. The embedding's block counts the matrix of a tied head.
StatusOr<std::vector<BlockCount>> CountBlocks(const DecoderSpec& spec);

}  // namespace ds::models
