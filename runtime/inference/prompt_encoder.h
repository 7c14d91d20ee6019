#pragma once

// PromptEncoder: converts prompts to a model's tokens. It applies the tokenizer to texts; it
// applies the chat template to conversations first.
//
// Torch-free. Not thread-safe.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::inference {

class PromptEncoder {
 public:
  // `folder` must outlive this object. Null: each byte is a token.
  explicit PromptEncoder(const tokenizer::TokenizerFolder* folder);

  // `prompt` is a text, or a list of messages, which the assistant answers, or an object with such
  // "messages" and the "variables" of the chat template. A text gets the tokenizer's special tokens
  // around it; a conversation has the special tokens of its template. Returns an error if there are
  // no tokens, or no template.
  StatusOr<std::vector<std::int64_t>> Encode(const nlohmann::ordered_json& prompt);

 private:
  StatusOr<std::vector<std::int64_t>> EncodeText(const std::string& text, bool special_tokens);

  const tokenizer::TokenizerFolder* folder_;
  std::optional<tokenizer::Encoder> encoder_;
};

}  // namespace ds::inference
