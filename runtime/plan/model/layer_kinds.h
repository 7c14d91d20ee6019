#pragma once

// These functions set which layers of a decoder are windowed, like transformers' layer_types.

#include <cstdint>
#include <functional>

#include "runtime/plan/model/config_reader.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Sets the kind of every layer; a layer is windowed if `is_windowed` returns true.
void SetLayerTypes(DecoderSpec* spec, const std::function<bool(std::int64_t)>& is_windowed);

// Reads "layer_types", if present, over the existing kinds.
void ReadLayerTypes(ConfigReader& reader, DecoderSpec* spec);

}  // namespace ds::models
