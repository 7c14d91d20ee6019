#pragma once

// Builds the list of blocks that a description stands for: embedding, layers, head.

#include <memory>
#include <optional>

#include "runtime/models/block.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/parallel/expert/token_exchange.h"
#include "runtime/parallel/sequence/group.h"
#include "runtime/parallel/tensor/group.h"

namespace ds::models {

// With whom a rank has one model and the same samples, and, of `experts`, other samples.
struct ModelRanks {
  tensor_parallel::Group tensor = {};      // each of them has a slice of the weights
  sequence_parallel::Group sequence = {};  // and each of these a part of the tokens
  moe::ExpertGroup experts = {};           // each has whole experts of every layer
};

// The model, its parameters unmaterialised under Hugging Face's names; `options` gives their dtype
// (fp32, bf16 or fp16) and device. Its blocks call the other ranks in their passes; of experts it
// has this rank's alone. Requires a decoder that CheckModelRanks takes.
//
// With `part`: only the blocks that a stage of a pipeline has, of layers + 2. A tied table is on
// the first stage and on the last, unless one stage has the first block and the last.
std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const ModelRanks& ranks = {},
                                      const std::optional<StagePart>& part = {});

}  // namespace ds::models
