#pragma once

// SentencePieceNormalizer does to a text what SentencePiece does before its model reads it.
//
// Threads: const functions may be called concurrently.

#include <memory>

#include "runtime/tokenizer/normalizers/charsmap.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/text/byte_trie.h"

namespace ds::tokenizer {

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
