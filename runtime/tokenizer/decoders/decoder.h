#pragma once

// Decoder turns tokens back into text; "decoder" of a tokenizer.json. Thread-safe: const functions
// may be called concurrently.

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the tokens. After all decoders, the remaining texts are joined.
  virtual Status Apply(std::vector<std::string>* tokens) const = 0;
};

// Returns the steps of the component, in order; sequences are flattened. An unknown type is
// rejected by name.
StatusOr<std::vector<std::unique_ptr<Decoder>>> ReadDecoder(const JsonObject& component);

// Replaces each invalid part of UTF-8 by U+FFFD, as Rust's from_utf8_lossy does.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace ds::tokenizer
