#pragma once

// ReadTokenizer reads a tokenizer from the files of a Hugging Face folder.
//
// Errors name the file and the key. Unknown component types and patterns are rejected by name.
// Every size and offset in the files is checked before use.

#include <filesystem>
#include <string_view>

#include "runtime/tokenizer/tokenizer.h"

namespace ds::tokenizer {

// Reads the folder's tokenizer.json, else vocab.json and merges.txt, else SentencePiece's
// tokenizer.model, each with the tokens of the files next to it (side_files.h). `path` may also be
// a tokenizer.json, which is then read alone.
StatusOr<Tokenizer> ReadTokenizer(const std::filesystem::path& path);

// Parses the text of a tokenizer.json; errors call it `name`.
StatusOr<Tokenizer> ParseTokenizerJson(std::string_view text, const std::string& name);

}  // namespace ds::tokenizer
