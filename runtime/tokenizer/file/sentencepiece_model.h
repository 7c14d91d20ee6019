#pragma once

// SentencePiece's tokenizer.model: a message of protobuf with pieces, scores, a charsmap and how
// blanks are treated. Read here and run by this library's BPE and Unigram, which give
// SentencePiece's ids: so no second protobuf stands beside LibTorch's.

#include <string_view>

#include "runtime/tokenizer/text/json_object.h"
#include "runtime/tokenizer/tokenizer_parts.h"

namespace ds::tokenizer {

// Reads the bytes of a tokenizer.model. `config`, a tokenizer_config.json, says whether texts begin
// and end with special tokens (add_bos_token, add_eos_token); null: they do not.
StatusOr<TokenizerParts> ParseSentencePieceModel(std::string_view bytes, const JsonObject* config);

}  // namespace ds::tokenizer
