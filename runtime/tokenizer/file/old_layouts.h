#pragma once

// Tokenizer folders from before tokenizer.json, as the tokenizer.json that transformers 5 makes of
// them: vocab.json and merges.txt of GPT-2 and Qwen2, and tokenizer.model of the Llama class.
// Tokens of the side files (side_files.h) are among their added tokens.

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/file/side_files.h"

namespace ds::tokenizer {

struct OldLayout {
  Json root;               // as of a tokenizer.json
  std::string name;        // for errors
  std::string begin, end;  // tokens around a text; "" for none
};

// Refuses other classes by their name.
StatusOr<OldLayout> ReadTwoFiles(const std::filesystem::path& folder);

// Nothing where tokenizer_config.json does not name the Llama class.
StatusOr<std::optional<OldLayout>> ReadLlamaModel(const std::filesystem::path& folder);

// The named tokens of a folder; without a tokenizer.json its class fills in.
StatusOr<Json> ReadNamedTokens(const std::filesystem::path& folder);

}  // namespace ds::tokenizer
