#pragma once

// GPT-2 as Hugging Face defines it: learnt positions, LayerNorm before each part, one fused
// query-key-value product, a GELU MLP; Conv1D weights are [in, out].

#include <memory>

#include "runtime/models/block.h"
#include "runtime/models/model_config.h"

namespace ds::models {

// Requires: config.family holds a Gpt2Config. `options` gives the parameters' dtype and device.
std::shared_ptr<BlockList> BuildGpt2(const ModelConfig& config, const at::TensorOptions& options);

}  // namespace ds::models
