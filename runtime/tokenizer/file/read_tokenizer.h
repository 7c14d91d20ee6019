#pragma once

// ReadTokenizer: a tokenizer from the files of a Hugging Face folder.
//
// Errors name the file and the key; what this library does not know (a component's type, a pattern)
// is refused by its name. Every size and offset in the files is checked before it is used.

#include <filesystem>
#include <string_view>

#include "runtime/tokenizer/tokenizer.h"

namespace ds::tokenizer {

// Reads the folder's tokenizer.json, else GPT-2's vocab.json and merges.txt, else SentencePiece's
// tokenizer.model. `path` may be a tokenizer.json itself.
StatusOr<Tokenizer> ReadTokenizer(const std::filesystem::path& path);

// A tokenizer.json that is in memory; `name` is how errors call it.
StatusOr<Tokenizer> ParseTokenizerJson(std::string_view text, const std::string& name);

}  // namespace ds::tokenizer
