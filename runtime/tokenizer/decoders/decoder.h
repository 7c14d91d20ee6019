#pragma once

// Decoder: makes text of tokens again; "decoder" of a tokenizer.json. Threads: const functions may
// be called concurrently.

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the tokens; the texts that are left then are joined.
  virtual Status Apply(std::vector<std::string>* tokens) const = 0;
};

// The steps of the component, in order; sequences are flat. An unknown type is refused by its name.
StatusOr<std::vector<std::unique_ptr<Decoder>>> ReadDecoder(const JsonObject& component);

// Bytes as UTF-8, each part that is none replaced by U+FFFD, as Rust's from_utf8_lossy does.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace ds::tokenizer
