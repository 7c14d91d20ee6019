#pragma once

// WordPiece (the longest token that a word begins with, then the longest that goes on, marked by a
// prefix; a word that cannot be cut so is unknown) and WordLevel (a word is a token, or unknown).

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
  ByteTrie first_;   // what a word may begin with
  ByteTrie others_;  // what may follow, without the prefix
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
