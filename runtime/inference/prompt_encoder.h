#pragma once

// PromptEncoder: prompts as the tokens that a model reads: texts by its tokenizer, conversations by
// its chat template first.
//
// Torch-free. Threads: one.

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
  // `folder` outlives it. Null: a byte is a token.
  explicit PromptEncoder(const tokenizer::TokenizerFolder* folder);

  // `prompt` is a text, or a list of messages, behind which the assistant is to answer. A text gets
  // the special tokens that the tokenizer puts around one; a conversation has its template's. An
  // error where there is no token, or no template.
  StatusOr<std::vector<std::int64_t>> Encode(const nlohmann::ordered_json& prompt);

 private:
  StatusOr<std::vector<std::int64_t>> EncodeText(const std::string& text, bool special_tokens);

  const tokenizer::TokenizerFolder* folder_;
  std::optional<tokenizer::Encoder> encoder_;
};

}  // namespace ds::inference
