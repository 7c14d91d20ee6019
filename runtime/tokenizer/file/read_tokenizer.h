#pragma once

// ReadTokenizer: a tokenizer from the files of a Hugging Face folder.
//
// Errors name the file and the key; what this library does not know (a component's type, a pattern)
// is refused by its name. Every size and offset in the files is checked before it is used.

#include <filesystem>
#include <string_view>

#include "runtime/tokenizer/tokenizer.h"

namespace ds::tokenizer {

// Reads the folder's tokenizer.json, else vocab.json and merges.txt, else SentencePiece's
// tokenizer.model, each with the tokens of the files next to it (side_files.h). `path` may be a
// tokenizer.json itself, which is read alone.
StatusOr<Tokenizer> ReadTokenizer(const std::filesystem::path& path);

// A tokenizer.json that is in memory; `name` is how errors call it.
StatusOr<Tokenizer> ParseTokenizerJson(std::string_view text, const std::string& name);

}  // namespace ds::tokenizer
