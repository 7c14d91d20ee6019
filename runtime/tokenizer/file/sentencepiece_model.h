#pragma once

// SentencePiece's tokenizer.model: a message of protobuf with pieces, scores, a charsmap and how
// blanks are treated. Read here and run by this library's BPE and Unigram, which give
// SentencePiece's ids: so no second protobuf stands beside LibTorch's.

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/normalizers/charsmap.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/text/byte_trie.h"
#include "runtime/tokenizer/text/json_object.h"
#include "runtime/tokenizer/tokenizer_parts.h"

namespace ds::tokenizer {

// Reads the bytes of a tokenizer.model. `config`, a tokenizer_config.json, says whether texts begin
// and end with special tokens (add_bos_token, add_eos_token); null: they do not. `added` are tokens
// of other files ("added_tokens" of a tokenizer.json).
StatusOr<TokenizerParts> ParseSentencePieceModel(std::string_view bytes, const JsonObject* config,
                                                 std::vector<AddedToken> added = {});

// The pieces of a tokenizer.model as the vocabulary and the merges of a BPE, in the order of their
// ids, as transformers takes them out; and the tokens that the model itself adds: control pieces
// and those that the user has defined.
struct SentencePieceVocabulary {
  Json vocabulary, merges, own_tokens;
};
StatusOr<SentencePieceVocabulary> ReadSentencePieceVocabulary(std::string_view bytes);

// SentencePieceNormalizer does to a text what SentencePiece does before its model reads it.
//
// Threads: const functions may be called concurrently.

struct BlankRules {
  bool add_dummy_prefix = true;     // a blank before the text, or behind it
  bool blanks_as_suffix = false;    // the blank is behind
  bool remove_extra_blanks = true;  // none at the ends, one in a row
  bool escape_blanks = true;        // blanks become U+2581
};

// `symbols` are the pieces that the user has defined: they stay as they are.
std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(Charsmap map, BlankRules rules,
                                                        std::shared_ptr<const ByteTrie> symbols);

// Takes the symbols out of words, as tokens.
std::unique_ptr<PreTokenizer> MakeSymbolSplit(std::shared_ptr<const ByteTrie> symbols);

}  // namespace ds::tokenizer
