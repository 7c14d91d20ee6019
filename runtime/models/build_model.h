#pragma once

// From a description to a list of blocks.

#include <memory>

#include "runtime/models/block.h"
#include "runtime/models/model_config.h"

namespace ds::models {

// The model that `config` describes, its parameters unmaterialised; `options` gives their dtype
// (fp32, bf16 or fp16) and device.
std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options);

}  // namespace ds::models
