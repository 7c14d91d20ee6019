#pragma once

// ListBlockSizes: the parameters of a decoder's blocks, in numbers.

#include <cstdint>
#include <vector>

#include "runtime/models/spec/decoder_spec.h"

namespace ds::models {

struct ParameterSize {
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  bool is_matrix = false;
  const char* module = "";     // its name, of a table or a head
  bool on_two_stages = false;  // the first of a pipeline and the last hold it

  std::int64_t numel() const { return rows * columns; }
};

// A block's parameters in the order of the model, and what else it reads.
struct BlockSizes {
  std::vector<ParameterSize> parameters;
  std::vector<int> also_reads = {};
  bool backward_reads = true;  // parameters
};

// The embedding, the layers, the head.
std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec);

// Those of a pipeline's stage that has the blocks from `first` up to `end` of the model's: what
// they also read is counted from the first of them, and a tied head of the last stage has a table
// of its own.
std::vector<BlockSizes> ListStageSizes(const DecoderSpec& spec, int first, int end);

// Rows of the table of learned positions; 0: there is none.
std::int64_t CountPositions(const DecoderSpec& spec);

}  // namespace ds::models
