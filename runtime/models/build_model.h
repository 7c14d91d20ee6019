#pragma once

// Builds the list of blocks that a description stands for: embedding, layers, head.

#include <memory>

#include "runtime/models/block.h"
#include "runtime/models/model_config.h"
#include "runtime/tensor_parallel/group.h"

namespace ds::models {

// The model, its parameters unmaterialised under Hugging Face's names; `options` gives their dtype
// (fp32, bf16 or fp16) and device. Of several tensor ranks each gets its part, whose blocks call
// the others in their passes. Requires a decoder without experts that CheckTensorParts takes.
std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options,
                                      const tensor_parallel::Group& tensor_ranks = {});

}  // namespace ds::models
