#pragma once

// ListBlockSizes: the parameters of a decoder's blocks, in numbers.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// BlockPart is of a block; a layer has none of the first two, the others have no other.
enum class BlockPart {
  kTable,       // tokens or positions, or the head's matrix
  kOuterNorm,   // the embedding's or the final one
  kInputNorm,   // attention's
  kProjection,  // queries, keys and values, with their norms
  kMixed,       // the product behind attention
  kMlpNorm,
  kWiden,
  kDown,
};
inline constexpr int kBlockParts = 8;

struct ParameterSize {
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  bool is_matrix = false;
  const char* module = "";  // its name, of a table or a head
  std::string name = {};    // within the block
  BlockPart part = BlockPart::kTable;
  bool trained = true;
  bool on_two_stages = false;  // the first of a pipeline and the last hold it
  bool is_expert = false;      // or the router: no adapter stands beside it
  std::int64_t expert = -1;    // its number in the layer, of an expert's
  std::int64_t bytes = 0;      // that stand for it (QuantizedLayout); 0: none do
  bool drops_inputs = false;   // an adapter's first matrix, while training

  std::int64_t numel() const { return rows * columns; }
  std::int64_t held() const { return bytes > 0 ? bytes : numel(); }  // elements or bytes
};

// A block's parameters in the order of the model, and what else it reads.
struct BlockSizes {
  std::string prefix;  // of their names
  std::vector<ParameterSize> parameters;
  std::vector<int> also_reads = {};
  bool backward_reads = true;  // parameters
};

// The embedding, the layers, the head.
std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec);

// A parameter as a model folder stores it.
struct StoredParameter {
  std::string name;  // in full
  std::vector<std::int64_t> shape;
};
std::vector<StoredParameter> ListStored(const DecoderSpec& spec);

// Takes those of a pipeline's stage that has these runs of blocks [first, end) of all: a tied head
// that is not on the table's stage has one of its own.
std::vector<BlockSizes> TakeStage(const std::vector<BlockSizes>& all,
                                  const std::vector<std::pair<int, int>>& runs);

// Takes of each layer's experts those of the first rank, of ranks that have so many each.
void TakeExperts(std::int64_t count, std::vector<BlockSizes>* blocks);

// Rows of the table of learned positions; 0: there is none.
std::int64_t CountPositions(const DecoderSpec& spec);

}  // namespace ds::models
