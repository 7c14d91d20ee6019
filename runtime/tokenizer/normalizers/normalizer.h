#pragma once

// Normalizer rewrites a text before it is split into words; "normalizer" of a tokenizer.json.
// Thread-safe: const functions may be called concurrently.

#include <memory>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/aligned_text.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Status Apply(AlignedText* text) const = 0;
};

// Reads the component; an unknown type is rejected by name.
StatusOr<std::unique_ptr<Normalizer>> ReadNormalizer(const JsonObject& component);

}  // namespace ds::tokenizer
