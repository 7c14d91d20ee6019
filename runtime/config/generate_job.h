#pragma once

// GenerateJob holds everything that dsrank needs for `dsrun generate`.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

struct GenerateJob {
  std::string model;         // a folder, a config.json or a preset
  std::string tokenizer;     // its folder; "" = a token is a byte
  std::string lora_adapter;  // a PEFT folder for the model; "" = none
  // Each prompt is a text, a list of messages, or an object with "messages" and the chat template's
  // "variables".
  std::vector<nlohmann::ordered_json> prompts;
  // Override the values of the folder's generation_config.json.
  std::optional<std::int64_t> max_new_tokens;
  std::optional<bool> draws;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;
  bool ignore_generation_config = false;  // except for its end-of-text tokens
  std::uint64_t seed = 1234;              // of sampling, and of weights without a file
  std::string dtype = "auto";             // or float32, bfloat16, float16
  std::string device = "cpu";             // or cuda (the first GPU); auto: the GPU if there is one
  std::int64_t batch_size = 8;            // prompts in one batch
  bool json = false;                      // a line of JSON for each prompt
  int status_offset = 0;                  // added to statuses of exit_codes.h (kDistinctBase)

  friend bool operator==(const GenerateJob&, const GenerateJob&) = default;
};

std::string ToJson(const GenerateJob& job);
// Parses ToJson's output. Every field is required, of the right type and in range.
StatusOr<GenerateJob> GenerateJobFromJson(std::string_view json);

}  // namespace ds::config
