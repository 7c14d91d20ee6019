#pragma once

// PreTokenizer: cuts a normalized text into the words that the model reads one by one;
// "pre_tokenizer" of a tokenizer.json. Threads: const functions may be called concurrently.

#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/pre_tokenizers/words.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status Apply(Words* words) const = 0;

  // True of the step that puts GPT-2's letters for bytes. A model that reads bytes can do without.
  virtual bool PutsLetters() const { return false; }
  // True when it looks at where a word comes from, so that the text must be aligned.
  virtual bool NeedsOrigins() const { return false; }
};

// The steps of the component, in order; sequences are flat. An unknown type is refused by its name.
StatusOr<std::vector<std::unique_ptr<PreTokenizer>>> ReadPreTokenizer(const JsonObject& component);

// PrependScheme says how a Metaspace marks the beginning of a text.
enum class PrependScheme { kAlways, kFirst, kNever };
StatusOr<PrependScheme> ReadPrependScheme(const JsonObject& metaspace);

}  // namespace ds::tokenizer
