#pragma once

// ModelConfig: a model's description, read from a Hugging Face config.json and validated.
//
// An absent key has transformers' default. A value that changes the mathematics is either
// implemented or rejected by name. An unknown key is rejected, too, because it might change them.

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
  std::filesystem::path folder;  // the folder of the weights; empty for a preset
  nlohmann::ordered_json json;   // the file as read
};

// Reads a model. `model` is a folder with a config.json, a path to such a file, or a preset's name.
StatusOr<ModelConfig> ReadModelConfig(const std::string& model);

// Same from JSON text; `file_name` is used in messages.
StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& file_name);

// Returns the names of the presets (configs/models), sorted.
std::vector<std::string> ModelPresets();

// Returns OK if the model can run on sequences of `seq_len` tokens.
Status CheckSequenceLength(const ModelConfig& config, std::int64_t seq_len);

}  // namespace ds::models
