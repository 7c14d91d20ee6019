#pragma once

// GPT-2's two files, vocab.json and merges.txt, as the tokenizer.json that they mean: bytes as
// letters, GPT-2's words, and the special tokens of tokenizer_config.json.

#include <filesystem>

#include "runtime/tokenizer/file/json_object.h"

namespace ds::tokenizer {

// Requires both files in the folder.
StatusOr<Json> ReadGpt2Files(const std::filesystem::path& folder);

}  // namespace ds::tokenizer
