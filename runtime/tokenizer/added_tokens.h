#pragma once

// AddedTokens are tokens that are matched in a text before it is split into words: special tokens,
// and tokens added to a trained vocabulary; "added_tokens" of a tokenizer.json.
//
// Thread-safe: const functions may be called concurrently.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/models/vocabulary.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenized_text.h"
#include "runtime/tokenizer/text/byte_trie.h"

namespace ds::tokenizer {

struct AddedToken {
  std::string content;
  bool single_word = false;  // does not match inside a word
  bool lstrip = false;       // absorbs white space before it
  bool rstrip = false;       // absorbs white space after it
  bool normalized = true;    // matched in the normalized text, after normalizing the content
  bool special = false;      // omitted when decoding without special tokens
};

class AddedTokens {
 public:
  AddedTokens() = default;

  // Gives every token the id of its content in the vocabulary, else the next free id, as Hugging
  // Face's library does. `normalizer` may be null.
  static StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                                      const Normalizer* normalizer);

  // Splits the text at the tokens found in it, and normalizes the text between them.
  Status Extract(const AlignedText& text, const Normalizer* normalizer,
                 PreTokenizedText* words) const;

  std::optional<std::uint32_t> Find(std::string_view content) const;
  // Returns null when no added token has the id.
  const AddedToken* TokenOf(std::uint32_t id) const;
  // Returns the text for decoding the token: the content, normalized if the token matches
  // normalized text.
  std::string DecodedText(std::uint32_t id) const;
  bool IsSpecial(std::string_view content) const { return special_.contains(std::string(content)); }
  // Returns the largest id plus one; 0 when there are no tokens.
  std::size_t id_limit() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

 private:
  struct TokenMatch {
    std::uint32_t begin, end, token;  // kNoToken: the text between tokens
  };
  std::vector<TokenMatch> FindIn(std::string_view text, const ByteTrie& trie) const;
  bool IsSingleWord(std::string_view text, const TokenMatch& found) const;

  std::map<std::uint32_t, AddedToken> tokens_;  // by id
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, std::string> normalized_;  // contents changed by the normalizer
  std::unordered_set<std::string> special_;
  ByteTrie raw_trie_, normalized_trie_;
};

}  // namespace ds::tokenizer
