#pragma once

// PreTokenizer splits a normalized text into words, which the model reads one by one;
// "pre_tokenizer" of a tokenizer.json. Thread-safe: const functions may be called concurrently.

#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenized_text.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status Apply(PreTokenizedText* words) const = 0;

  // Returns true for the step that replaces bytes by GPT-2's letters. A model that reads bytes can
  // skip it.
  virtual bool PutsLetters() const { return false; }
  // Returns true if the step uses the origin of a word, so that the text must be aligned.
  virtual bool NeedsOrigins() const { return false; }
};

// Returns the steps of the component, in order; sequences are flattened. An unknown type is
// rejected by name.
StatusOr<std::vector<std::unique_ptr<PreTokenizer>>> ReadPreTokenizer(const JsonObject& component);

// PrependScheme selects how a Metaspace marks the beginning of a text.
enum class PrependScheme { kAlways, kFirst, kNever };
StatusOr<PrependScheme> ReadPrependScheme(const JsonObject& metaspace);

}  // namespace ds::tokenizer
