#pragma once

// TrainableParameters: the trained parameters of a decoder that is not fully trained: adapters next
// to frozen weights (LoRA), and parameters that no freeze pattern matches. Pure. Thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/model/lora_spec.h"
#include "runtime/plan/model/quantized_layout.h"

namespace ds::models {

struct TrainableParameters {
  std::optional<LoraSpec> lora = {};
  std::vector<std::string> freeze = {};  // shell patterns of full names
  std::optional<BaseFormat> base = {};   // the quantized format of frozen weights in layers

  bool is_all() const { return !lora && !base && freeze.empty(); }
};

ModelNames ListNames(const std::vector<BlockSizes>& blocks);

// Marks the blocks' frozen parameters and adds the adapters' parameters, like AddLora, QuantizeBase
// and FreezeParameters (models/layers/lora.h). Fails in the same cases, by the same rules
// (model/trained_names.h).
Status ApplyTrainableParameters(const TrainableParameters& part, std::vector<BlockSizes>* blocks);

struct ComponentTraining {
  bool trains = true;
  bool reads_input = true;  // in its backward pass: it has a trained matrix
  bool adapts = false;      // one of its products has an adapter
  // DoRA multiplies `scaled` values per token. `unpacked` and `normed` are sizes in elements: of
  // the largest weight that is dequantized for each product, and of the largest weight with row
  // norms computed by DoRA.
  std::int64_t scaled = 0, unpacked = 0, normed = 0;
};

// BlockTraining: describes the computation of a block's backward pass.
struct BlockTraining {
  bool input = true;  // needs a gradient: an earlier block is trained
  std::array<ComponentTraining, kBlockParts> parts = {};
  std::int64_t ranks = 0;    // the sum over all adapters
  std::int64_t dropped = 0;  // inputs per token with dropout of adapters

  const ComponentTraining& at(BlockComponent part) const {
    return parts[static_cast<std::size_t>(part)];
  }
  ComponentTraining& at(BlockComponent part) { return parts[static_cast<std::size_t>(part)]; }
  bool trains(BlockComponent part) const { return at(part).trains; }
  // True if queries, keys or values need a gradient; of_block: if the block's output does.
  bool of_attention() const;
  bool of_block() const;
};

// Indexed by block. A tied head's table belongs to the first block.
std::vector<BlockTraining> ListTraining(const std::vector<BlockSizes>& blocks);

}  // namespace ds::models
