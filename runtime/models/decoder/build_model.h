#pragma once

// Builds the list of blocks that a model description stands for: embedding, layers, head.

#include <memory>
#include <optional>

#include "runtime/models/block.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/parallel/expert/token_exchange.h"
#include "runtime/parallel/sequence/group.h"
#include "runtime/parallel/tensor/group.h"

namespace ds::models {

// The groups of ranks that hold one model together. Tensor and sequence ranks process the same
// samples; expert ranks process different ones.
struct ModelRanks {
  tensor_parallel::TensorGroup tensor = {};        // each rank has a slice of the weights
  sequence_parallel::SequenceGroup sequence = {};  // each rank has a part of the tokens
  moe::ExpertGroup experts = {};                   // each rank has full experts of every layer
};

// Returns the model with unmaterialised parameters under Hugging Face names. `options` gives their
// dtype (fp32, bf16 or fp16) and device. The blocks communicate with the other ranks in their
// forward and backward passes; of the experts, the model holds only this rank's. Requires a decoder
// that CheckModelRanks accepts.
//
// With `part`, the list holds only the blocks of one pipeline stage, out of layers + 2. A tied
// embedding table is held by both the first stage and the last, unless one stage has both the first
// and the last block.
std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const ModelRanks& ranks = {},
                                      const std::optional<StageBlocks>& part = {});

}  // namespace ds::models
