#pragma once

// Model: cuts a word into tokens of its vocabulary; "model" of a tokenizer.json.
// Threads: const functions may be called concurrently, each with a cache of its own.

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

  // Appends the tokens of a word. Requires valid UTF-8, unless the model reads bytes. An unknown
  // character without a token for such is kFailedPrecondition.
  virtual Status Tokenize(std::string_view word, WordCache* cache,
                          std::vector<Token>* tokens) const = 0;

  // The text of a token that was cut from `word`.
  virtual std::string TextOf(const Token& token, std::string_view word) const;

  // Makes the model read the bytes that GPT-2's letters stand for; false when it cannot, as its
  // vocabulary is no one of letters.
  virtual bool ReadBytes() { return false; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

// Reads the component. Files without a "type" are told apart by their keys, as they always were; an
// unknown type is refused by its name.
StatusOr<std::unique_ptr<Model>> ReadModel(const JsonObject& component);

// Reads "vocab" as an object of tokens and ids.
StatusOr<Vocabulary> ReadVocabulary(const JsonObject& component);

}  // namespace ds::tokenizer
