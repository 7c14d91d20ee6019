#pragma once

// Reads SentencePiece's tokenizer.model: a protobuf message with pieces, scores, a charsmap and the
// rules for blanks. It is parsed here and run by this library's BPE and Unigram, which give
// SentencePiece's ids. This avoids a second protobuf library next to LibTorch's.

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/normalizers/charsmap.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/text/byte_trie.h"
#include "runtime/tokenizer/text/json_object.h"
#include "runtime/tokenizer/tokenization_pipeline.h"

namespace ds::tokenizer {

// Parses the bytes of a tokenizer.model. `config`, a tokenizer_config.json, selects whether texts
// begin and end with special tokens (add_bos_token, add_eos_token); null: they do not. `added` are
// tokens of other files ("added_tokens" of a tokenizer.json).
StatusOr<TokenizationPipeline> ParseSentencePieceModel(std::string_view bytes,
                                                       const JsonObject* config,
                                                       std::vector<AddedToken> added = {});

// The pieces of a tokenizer.model as the vocabulary and the merges of a BPE, in the order of their
// ids, as transformers extracts them; and the tokens that the model itself adds: control pieces and
// user-defined pieces.
struct SentencePieceVocabulary {
  Json vocabulary, merges, own_tokens;
};
StatusOr<SentencePieceVocabulary> ReadSentencePieceVocabulary(std::string_view bytes);

// Returns a normalizer that does the same as SentencePiece before its model reads a text.
//
// Thread-safe: const functions may be called concurrently.

struct BlankRules {
  bool add_dummy_prefix = true;     // adds a blank before the text, or after it
  bool blanks_as_suffix = false;    // the blank comes after the text
  bool remove_extra_blanks = true;  // removes blanks at the ends and repeated ones
  bool escape_blanks = true;        // blanks become U+2581
};

// `symbols` are the user-defined pieces, which are not changed.
std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(Charsmap map, BlankRules rules,
                                                        std::shared_ptr<const ByteTrie> symbols);

// Returns a pre-tokenizer that splits the symbols off words, as tokens.
std::unique_ptr<PreTokenizer> MakeSymbolSplit(std::shared_ptr<const ByteTrie> symbols);

}  // namespace ds::tokenizer
