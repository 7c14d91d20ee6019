#pragma once

// Llama as Hugging Face defines it: RMSNorm before each part, rotary positions, grouped-query
// attention, a gated MLP.

#include <memory>

#include "runtime/models/block.h"
#include "runtime/models/model_config.h"

namespace ds::models {

// Requires: config.family holds a LlamaConfig. `options` gives the parameters' dtype and device.
std::shared_ptr<BlockList> BuildLlama(const ModelConfig& config, const at::TensorOptions& options);

}  // namespace ds::models
