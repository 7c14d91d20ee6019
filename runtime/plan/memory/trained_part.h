#pragma once

// TrainedPart says which of a decoder's parameters are trained, where not all are: adapters beside
// frozen ones (LoRA), and what patterns leave. Pure; safe from any thread.

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

struct TrainedPart {
  std::optional<LoraSpec> lora = {};
  std::vector<std::string> freeze = {};  // patterns of full names, as of files
  std::optional<BaseFormat> base = {};   // in which frozen weights of layers' products are kept

  bool is_all() const { return !lora && !base && freeze.empty(); }
};

ModelNames ListNames(const std::vector<BlockSizes>& blocks);

// Marks the blocks' frozen parameters, and adds those of adapters, as AddLora, QuantizeBase and
// FreezeParameters (models/layers/lora.h) do. Refuses what they refuse, by the same rules
// (spec/trained_names.h).
Status ApplyTrainedPart(const TrainedPart& part, std::vector<BlockSizes>* blocks);

struct PartTraining {
  bool trains = true;
  bool reads_input = true;  // in its backward pass: it has a matrix that is trained
  bool adapts = false;      // one of its products has an adapter
  // DoRA multiplies so many values of a token. `unpacked` and `normed` are elements of the largest
  // product's weight: one that is made of bytes whenever it is multiplied, and one of whose rows
  // DoRA takes the norms.
  std::int64_t scaled = 0, unpacked = 0, normed = 0;
};

// BlockTraining says what a block's backward pass computes.
struct BlockTraining {
  bool input = true;  // needs a gradient: something before is trained
  std::array<PartTraining, kBlockParts> parts = {};
  std::int64_t ranks = 0;    // of all adapters together
  std::int64_t dropped = 0;  // inputs of a token that adapters drop some of

  const PartTraining& at(BlockPart part) const { return parts[static_cast<std::size_t>(part)]; }
  PartTraining& at(BlockPart part) { return parts[static_cast<std::size_t>(part)]; }
  bool trains(BlockPart part) const { return at(part).trains; }
  // Tells whether queries, keys or values need a gradient, or what the block gives on does.
  bool of_attention() const;
  bool of_block() const;
};

// By block. A tied head's table is the first block's.
std::vector<BlockTraining> ListTraining(const std::vector<BlockSizes>& blocks);

}  // namespace ds::models
