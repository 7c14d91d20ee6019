#pragma once

// Builds the list of blocks that a description stands for: embedding, layers, head.

#include <memory>

#include "runtime/models/block.h"
#include "runtime/models/model_config.h"

namespace ds::models {

// The model, its parameters unmaterialised under Hugging Face's names; `options` gives their dtype
// (fp32, bf16 or fp16) and device. Requires a decoder without experts.
std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options);

}  // namespace ds::models
