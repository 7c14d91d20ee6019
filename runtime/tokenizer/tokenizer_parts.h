#pragma once

// TokenizerParts holds the components of a Tokenizer, independent of the files they were read from.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/decoders/decoder.h"
#include "runtime/tokenizer/models/model.h"
#include "runtime/tokenizer/models/vocabulary.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/post_processors/encoding.h"
#include "runtime/tokenizer/post_processors/post_processor.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/pre_tokenizers/words.h"
#include "runtime/tokenizer/text/byte_trie.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

// AddedTokens are tokens that are matched in a text before it is split into words: special tokens,
// and tokens added to a trained vocabulary; "added_tokens" of a tokenizer.json.
//
// Thread-safe: const functions may be called concurrently.

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
  Status Extract(const AlignedText& text, const Normalizer* normalizer, Words* words) const;

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
  struct Found {
    std::uint32_t begin, end, token;  // kNoToken: the text between tokens
  };
  std::vector<Found> FindIn(std::string_view text, const ByteTrie& trie) const;
  bool StandsAlone(std::string_view text, const Found& found) const;

  std::map<std::uint32_t, AddedToken> tokens_;  // by id
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, std::string> normalized_;  // contents changed by the normalizer
  std::unordered_set<std::string> special_;
  ByteTrie raw_trie_, normalized_trie_;
};

// Truncation limits the number of tokens of a text or a pair; "truncation" of a tokenizer.json.
// Pure.

enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };

struct Truncation {
  std::size_t max_length = 512;  // including the special tokens
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  bool from_left = false;  // removes tokens at the beginning
};

StatusOr<Truncation> ReadTruncation(const JsonObject& component);

// Shortens one or two encodings so that they have `max_length` tokens, including `added` special
// tokens. Fails if they cannot be shortened that far.
Status Truncate(const Truncation& truncation, std::size_t added, std::vector<Encoding>* parts);

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  // Without a decoder, tokens are joined with blanks.
  std::optional<std::vector<std::unique_ptr<Decoder>>> decoder;
  std::optional<Truncation> truncation;
};

}  // namespace ds::tokenizer
