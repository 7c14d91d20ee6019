#pragma once

// TokenizerFolder: what a Hugging Face folder says of texts: how they are cut, what ends one, and
// how conversations are written.

#include <filesystem>
#include <optional>

#include "runtime/tokenizer/chat/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

namespace ds::tokenizer {

struct TokenizerFolder {
  Tokenizer tokenizer;
  std::optional<std::uint32_t> end_of_text;  // eos_token, or the model's eos_token_id
  std::optional<ChatTemplate> chat_template;
  nlohmann::ordered_json chat_variables;  // bos_token, eos_token ... by name
};

// Files of the folder that decide how texts are cut; those of them that are there.
std::vector<std::filesystem::path> TokenizerFilesIn(const std::filesystem::path& folder);

// True when the folder has a tokenizer that ReadTokenizer finds.
bool HasTokenizer(const std::filesystem::path& folder);

// Reads the tokenizer, tokenizer_config.json with special_tokens_map.json, chat_template.jinja, and
// of the model's config.json what ends a text. Errors name the file.
StatusOr<TokenizerFolder> ReadTokenizerFolder(const std::filesystem::path& folder);

}  // namespace ds::tokenizer
