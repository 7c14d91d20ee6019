#pragma once

// WordPiece and WordLevel. WordPiece takes the longest token that a word begins with, then
// repeatedly the longest continuation token, marked by a prefix; a word that cannot be split so is
// unknown. WordLevel maps a full word to a token, or to unknown.

#include "runtime/tokenizer/models/model.h"
#include "runtime/tokenizer/text/byte_trie.h"

namespace ds::tokenizer {

class WordPiece final : public Model {
 public:
  struct Settings {
    std::string unk_token = "[UNK]";
    std::string continuing_subword_prefix = "##";
    std::uint32_t max_input_chars_per_word = 100;  // longer words are unknown
  };

  WordPiece(Vocabulary vocabulary, Settings settings);

  Status Tokenize(std::string_view word, WordCache* cache,
                  std::vector<Token>* tokens) const override;

 private:
  bool Cut(std::string_view word, std::vector<Token>* tokens) const;

  Settings settings_;
  ByteTrie first_;   // tokens that may begin a word
  ByteTrie others_;  // tokens that may follow, without the prefix
};

class WordLevel final : public Model {
 public:
  WordLevel(Vocabulary vocabulary, std::string unk_token);

  Status Tokenize(std::string_view word, WordCache* cache,
                  std::vector<Token>* tokens) const override;

 private:
  std::string unk_token_;
};

}  // namespace ds::tokenizer
