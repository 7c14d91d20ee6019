#pragma once

// ReadAdapterLayout: reads the layers, ranks and full (non-LoRA) parameters of an
// adapter_model.safetensors, checked against its adapter_config.json.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

// Fills in the layers and full parameters of `spec`. Requires spec->rules. Reads only the header.
Status ReadAdapterLayout(const std::filesystem::path& folder, LoraSpec* spec);

}  // namespace ds::models
