#pragma once

// GenerationConfig: what the generation_config.json of a model's folder says of texts, read as
// transformers reads it: how tokens are chosen and which of them end a text.
//
// Torch-free. Threads: any.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/inference/sampling.h"

namespace ds::inference {

struct GenerationConfig {
  SamplingOptions sampling;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  // prompt included; counts without max_new_tokens
  std::vector<std::int64_t> end_tokens;
};

// A key that is absent or null has transformers' default. Refuses by name a value that is out of
// range, and a set key that would change the text and is not built; `file_name` is for messages.
StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text,
                                                 const std::string& file_name);

// Reads that of `folder`, or takes the default where it has none. `only_end_tokens` leaves the rest
// at its default, whatever it says. Where it names no end of a text, `model`, a config.json, may.
StatusOr<GenerationConfig> ReadGenerationConfig(const std::filesystem::path& folder,
                                                const nlohmann::ordered_json& model,
                                                bool only_end_tokens);

}  // namespace ds::inference
