#pragma once

// ModelConfig: the description of a model, a Hugging Face config.json, read and checked.
//
// A key that is absent has transformers' default. A value that changes the mathematics is honoured
// or refused by name; a key that nobody here knows is refused too, for it may be such a one.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct ModelConfig {
  DecoderSpec decoder;
  std::filesystem::path folder;  // where the weights would be; empty for a preset
  nlohmann::ordered_json json;   // the file as it was read
};

// `model` is a folder with a config.json, a path to such a file, or the name of a preset.
StatusOr<ModelConfig> ReadModelConfig(const std::string& model);

// The same from JSON text; `file_name` is for messages.
StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& file_name);

// Names of the presets (configs/models), sorted.
std::vector<std::string> ModelPresets();

// OK when the model can be run on sequences of `seq_len` tokens.
Status CheckSequenceLength(const ModelConfig& config, std::int64_t seq_len);

}  // namespace ds::models
