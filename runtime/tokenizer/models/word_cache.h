#pragma once

// WordCache caches the tokens of words that a model has split. Texts repeat their words, and a
// look-up is much cheaper than splitting. Bounded: it is cleared when it is full.
//
// Not thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ds::tokenizer {

// A token of a word: its id, and the bytes of the word that it covers.
struct Token {
  std::uint32_t id = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  friend bool operator==(const Token&, const Token&) = default;
};

class WordCache {
 public:
  WordCache();

  // Longer words are not cached.
  static constexpr std::size_t kLongestWord = 256;

  // Appends the word's tokens, with `offset` added to their positions; returns false when the word
  // is not cached.
  bool Find(std::string_view word, std::uint32_t offset, std::vector<Token>* tokens);
  // Stores the tokens of a word that the preceding Find did not find. Their positions include
  // `offset`.
  void Keep(std::string_view word, std::uint32_t offset, std::span<const Token> tokens);

 private:
  struct Entry {
    std::uint64_t hash = 0;  // 0: free
    std::uint32_t word = 0, tokens = 0;
    std::uint16_t word_size = 0, token_count = 0;
  };
  std::size_t SlotOf(std::uint64_t hash, std::string_view word) const;
  void Clear();

  std::vector<Entry> entries_;
  std::string words_;
  std::vector<Token> tokens_;
  std::size_t count_ = 0;
};

}  // namespace ds::tokenizer
