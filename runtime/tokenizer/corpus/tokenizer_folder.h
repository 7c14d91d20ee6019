#pragma once

// TokenizerFolder holds the text settings of a Hugging Face folder: its tokenizer, its end-of-text
// token and its chat template.

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

// Returns the existing files of the folder that affect tokenization.
std::vector<std::filesystem::path> TokenizerFilesIn(const std::filesystem::path& folder);

// Returns true if the folder has a tokenizer that ReadTokenizer finds.
bool HasTokenizer(const std::filesystem::path& folder);

// Reads the tokenizer, tokenizer_config.json with special_tokens_map.json, chat_template.jinja, and
// the end-of-text token of the model's config.json. Errors name the file.
StatusOr<TokenizerFolder> ReadTokenizerFolder(const std::filesystem::path& folder);

}  // namespace ds::tokenizer
