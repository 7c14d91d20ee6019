#pragma once

// These functions say which layers of a decoder are windowed, as transformers' layer_types do.

#include <cstdint>
#include <functional>

#include "runtime/plan/model/config_reader.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Gives every layer a kind, windowed where `is_windowed` says so.
void SetLayerTypes(DecoderSpec* spec, const std::function<bool(std::int64_t)>& is_windowed);

// Reads "layer_types" over the kinds that are there, if it is given.
void ReadLayerTypes(ConfigReader& reader, DecoderSpec* spec);

}  // namespace ds::models
