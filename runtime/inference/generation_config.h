#pragma once

// GenerationConfig: the settings of generation_config.json in a model's folder, parsed as
// transformers does: how tokens are chosen and which tokens end a text.
//
// Torch-free. Thread-safe.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/inference/sampling.h"

namespace ds::inference {

struct GenerationConfig {
  SamplingOptions sampling;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  // includes the prompt; used without max_new_tokens
  std::vector<std::int64_t> end_tokens;
};

// Parses the file's text. An absent or null key has transformers' default. Returns an error that
// names the key for a value out of range, and for a set key that would change the text and is not
// implemented. `file_name` is used in messages.
StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text,
                                                 const std::string& file_name);

// Reads the file of `folder`, or returns the defaults if there is none. `only_end_tokens` keeps the
// other settings at their defaults. If the file names no end token, the end tokens of `model`, a
// config.json, are used.
StatusOr<GenerationConfig> ReadGenerationConfig(const std::filesystem::path& folder,
                                                const nlohmann::ordered_json& model,
                                                bool only_end_tokens);

}  // namespace ds::inference
