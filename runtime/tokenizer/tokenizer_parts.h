#pragma once

// TokenizerParts: what a Tokenizer is made of, whatever files it was read from.

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

// AddedTokens: tokens that are found in a text before it is cut into words: special ones, and those
// that were added to a trained vocabulary; "added_tokens" of a tokenizer.json.
//
// Threads: const functions may be called concurrently.

struct AddedToken {
  std::string content;
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool normalized = true;    // looked for in the normalized text, itself normalized
  bool special = false;      // left out when decoding without special tokens
};

class AddedTokens {
 public:
  AddedTokens() = default;

  // Gives every token the id of its content in the vocabulary, else the next one that is free, as
  // Hugging Face's library does. `normalizer` may be null.
  static StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                                      const Normalizer* normalizer);

  // Cuts the text at what it holds of the tokens, and normalizes what lies between.
  Status Extract(const AlignedText& text, const Normalizer* normalizer, Words* words) const;

  std::optional<std::uint32_t> Find(std::string_view content) const;
  // Null when no added token has the id.
  const AddedToken* TokenOf(std::uint32_t id) const;
  // Decoding puts this for it: the content, normalized where that is looked for.
  std::string DecodedText(std::uint32_t id) const;
  bool IsSpecial(std::string_view content) const { return special_.contains(std::string(content)); }
  // The largest id and one; 0 when there is no token.
  std::size_t id_limit() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

 private:
  struct Found {
    std::uint32_t begin, end, token;  // kNoToken: what lies between
  };
  std::vector<Found> FindIn(std::string_view text, const ByteTrie& trie) const;
  bool StandsAlone(std::string_view text, const Found& found) const;

  std::map<std::uint32_t, AddedToken> tokens_;  // by id
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, std::string> normalized_;  // contents that normalizing changes
  std::unordered_set<std::string> special_;
  ByteTrie raw_trie_, normalized_trie_;
};

// Truncation: how many tokens a text, or a pair, may have; "truncation" of a tokenizer.json. Pure.

enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };

struct Truncation {
  std::size_t max_length = 512;  // with the special tokens
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  bool from_left = false;  // the tokens at the beginning go
};

StatusOr<Truncation> ReadTruncation(const JsonObject& component);

// Shortens one encoding or two so that they have `max_length` tokens with the `added` ones. What
// cannot be shortened so far is an error.
Status Truncate(const Truncation& truncation, std::size_t added, std::vector<Encoding>* parts);

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  std::optional<std::vector<std::unique_ptr<Decoder>>> decoder;  // without one, blanks join tokens
  std::optional<Truncation> truncation;
};

}  // namespace ds::tokenizer
