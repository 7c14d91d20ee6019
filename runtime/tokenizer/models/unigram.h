#pragma once

// Unigram finds the split of a word with the largest sum of token scores (Kudo 2018), by Viterbi's
// algorithm over a trie of the vocabulary.

#include "runtime/tokenizer/models/model.h"
#include "runtime/tokenizer/text/byte_trie.h"

namespace ds::tokenizer {

class Unigram final : public Model {
 public:
  struct Settings {
    std::optional<std::uint32_t> unk_id;  // without it unknown characters are an error
    bool byte_fallback = false;           // tokens <0x00> to <0xFF> for unknown characters
    bool single_precision = false;        // sums floats, as SentencePiece does
    std::vector<bool> hidden;             // by id: tokens that never match a text; empty: none
  };

  // The token of id i has scores[i].
  Unigram(Vocabulary vocabulary, std::vector<double> scores, Settings settings);

  Status Tokenize(std::string_view word, WordCache* cache,
                  std::vector<Token>* tokens) const override;
  // Returns the source text for an unknown token.
  std::string TextOf(const Token& token, std::string_view word) const override;

 private:
  StatusOr<std::vector<Token>> FindBestPath(std::string_view word) const;
  Status AppendUnknown(std::string_view word, Token token, std::vector<Token>* tokens) const;

  std::vector<double> scores_;
  double unknown_score_ = 0;
  Settings settings_;
  ByteTrie trie_;
};

}  // namespace ds::tokenizer
