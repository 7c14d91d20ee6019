#pragma once

// ReadAdapterLayout: layers, ranks and whole parameters of an adapter_model.safetensors, checked
// against its adapter_config.json.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

// Fills in the layers and whole parameters of `spec`. Needs its rules. Reads the header only.
Status ReadAdapterLayout(const std::filesystem::path& folder, LoraSpec* spec);

}  // namespace ds::models
