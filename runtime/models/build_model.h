#pragma once

// Builds the list of blocks that a description stands for: one function per family, in a source of
// its own.

#include <memory>

#include "runtime/models/block.h"
#include "runtime/models/model_config.h"

namespace ds::models {

// The model that `config` describes, its parameters unmaterialised; `options` gives their dtype
// (fp32, bf16 or fp16) and device.
std::shared_ptr<BlockList> BuildModel(const ModelConfig& config, const at::TensorOptions& options);

// GPT-2 as Hugging Face defines it: learnt positions, LayerNorm before each part, one fused
// query-key-value product, a GELU MLP; Conv1D weights are [in, out]. Requires a Gpt2Config in
// config.family.
std::shared_ptr<BlockList> BuildGpt2(const ModelConfig& config, const at::TensorOptions& options);

// Llama as Hugging Face defines it: RMSNorm before each part, rotary positions, grouped-query
// attention, a gated MLP. Requires a LlamaConfig in config.family.
std::shared_ptr<BlockList> BuildLlama(const ModelConfig& config, const at::TensorOptions& options);

}  // namespace ds::models
