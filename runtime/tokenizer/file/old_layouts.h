#pragma once

// Reads tokenizer folders from before tokenizer.json, as the tokenizer.json that transformers 5
// derives from them: vocab.json and merges.txt of GPT-2 and Qwen2, and tokenizer.model of the Llama
// class. Tokens of the side files (side_files.h) are included as added tokens.

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/file/side_files.h"

namespace ds::tokenizer {

struct OldLayout {
  Json root;               // in the form of a tokenizer.json
  std::string name;        // for errors
  std::string begin, end;  // tokens around a text; "" for none
};

// Rejects other classes by name.
StatusOr<OldLayout> ReadTwoFiles(const std::filesystem::path& folder);

// Returns nothing if tokenizer_config.json does not name the Llama class.
StatusOr<std::optional<OldLayout>> ReadLlamaModel(const std::filesystem::path& folder);

// Returns the named tokens of a folder; without a tokenizer.json, the defaults of its class fill
// in.
StatusOr<Json> ReadNamedTokens(const std::filesystem::path& folder);

}  // namespace ds::tokenizer
