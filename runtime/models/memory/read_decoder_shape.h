#pragma once

// ReadDecoderShape: the numbers that decide what a model's blocks hold, from its config.json.

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"
#include "runtime/models/memory/decoder_memory.h"

namespace ds::models {

// Takes the families that can be trained. The error names the key, or the family.
StatusOr<DecoderShape> ReadDecoderShape(const nlohmann::ordered_json& config);

}  // namespace ds::models
