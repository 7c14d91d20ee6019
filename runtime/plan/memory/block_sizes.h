#pragma once

// ListBlockSizes: lists the parameters of a decoder's blocks with their sizes.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Parts of a block. Layers have none of the first two; the other blocks have only these.
enum class BlockComponent {
  kTable,       // tokens or positions, or the head's matrix
  kOuterNorm,   // of the embedding, or the final norm
  kInputNorm,   // of attention
  kProjection,  // queries, keys and values, with their norms
  kMixed,       // the output projection of attention
  kMlpNorm,
  kWiden,
  kDown,
};
inline constexpr int kBlockParts = 8;

struct ParameterSize {
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  bool is_matrix = false;
  const char* module = "";  // name of the module, for a table or a head
  std::string name = {};    // within the block
  BlockComponent part = BlockComponent::kTable;
  bool trained = true;
  bool on_two_stages = false;  // held by the first and the last stage of a pipeline
  bool is_expert = false;      // or the router: never adapted
  std::int64_t expert = -1;    // the expert's index in the layer
  std::int64_t bytes = 0;      // of the quantized weight (QuantizedLayout); 0: not quantized
  bool drops_inputs = false;   // an adapter's first matrix, with dropout in training

  std::int64_t numel() const { return rows * columns; }
  std::int64_t held() const { return bytes > 0 ? bytes : numel(); }  // elements or bytes
};

// A block's parameters in the order of the model, and the blocks that it also reads.
struct BlockSizes {
  std::string prefix;  // of their names
  std::vector<ParameterSize> parameters;
  std::vector<int> also_reads = {};
  bool backward_reads = true;  // parameters
};

// Lists the embedding, the layers and the head.
std::vector<BlockSizes> ListBlockSizes(const DecoderSpec& spec);

// A parameter, as a model folder stores it.
struct StoredParameter {
  std::string name;  // in full
  std::vector<std::int64_t> shape;
};
std::vector<StoredParameter> ListStored(const DecoderSpec& spec);

// Returns the blocks of a pipeline stage with these runs of blocks [first, end). A tied head on a
// stage without the table gets a copy of the table.
std::vector<BlockSizes> TakeStage(const std::vector<BlockSizes>& all,
                                  const std::vector<std::pair<int, int>>& runs);

// Keeps in each layer the experts of the first rank; each rank has `count` experts.
void TakeExperts(std::int64_t count, std::vector<BlockSizes>* blocks);

// Returns the rows of the table of learned positions; 0: no table.
std::int64_t CountPositions(const DecoderSpec& spec);

}  // namespace ds::models
