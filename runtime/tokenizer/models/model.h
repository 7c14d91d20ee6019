#pragma once

// Model splits a word into tokens of its vocabulary; "model" of a tokenizer.json. Thread-safe:
// const functions may be called concurrently, each with its own cache.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/models/vocabulary.h"
#include "runtime/tokenizer/models/word_cache.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

class Model {
 public:
  virtual ~Model() = default;

  // Appends the tokens of a word. Requires valid UTF-8, unless the model reads bytes. Returns
  // kFailedPrecondition for an unknown character if there is no token for unknown characters.
  virtual Status Tokenize(std::string_view word, WordCache* cache,
                          std::vector<Token>* tokens) const = 0;

  // Returns the text of a token of `word`.
  virtual std::string TextOf(const Token& token, std::string_view word) const;

  // Switches the model to reading raw bytes instead of GPT-2's letters for them. Returns false if
  // it cannot, because its vocabulary does not consist of these letters.
  virtual bool ReadBytes() { return false; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

// Reads the component. Files without a "type" are distinguished by their keys; an unknown type is
// rejected by name.
StatusOr<std::unique_ptr<Model>> ReadModel(const JsonObject& component);

// Reads "vocab" as an object of tokens and ids.
StatusOr<Vocabulary> ReadVocabulary(const JsonObject& component);

}  // namespace ds::tokenizer
