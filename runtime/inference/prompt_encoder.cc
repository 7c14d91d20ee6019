#include "runtime/inference/prompt_encoder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/tokenizer/corpus/written_chat.h"

namespace ds::inference {

PromptEncoder::PromptEncoder(const tokenizer::TokenizerFolder* folder) : folder_(folder) {
  if (folder != nullptr) encoder_.emplace(folder->tokenizer);
}

StatusOr<std::vector<std::int64_t>> PromptEncoder::EncodeText(const std::string& text,
                                                              bool special_tokens) {
  std::vector<std::int64_t> tokens;
  if (encoder_) {
    DS_ASSIGN_OR_RETURN(
        const tokenizer::Encoding encoding,
        encoder_->Encode(text, {.special_tokens = special_tokens, .truncate = false}));
    tokens.assign(encoding.ids.begin(), encoding.ids.end());
  } else {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
  if (tokens.empty()) return InvalidArgumentError("it has no token to start from");
  return tokens;
}

StatusOr<std::vector<std::int64_t>> PromptEncoder::Encode(const nlohmann::ordered_json& prompt) {
  if (prompt.is_string()) return EncodeText(prompt.get<std::string>(), /*special_tokens=*/true);
  if (folder_ == nullptr) {
    return FailedPreconditionError(
        "a conversation needs a chat template, and there is no tokenizer's folder with one");
  }
  tokenizer::ChatRow row;
  row.messages = prompt.is_array() ? prompt : prompt.at("messages");
  if (prompt.is_object()) row.variables = prompt.at("variables");
  DS_ASSIGN_OR_RETURN(const tokenizer::WrittenChat chat,
                      tokenizer::WriteChat(row, *folder_, /*add_generation_prompt=*/true));
  return EncodeText(chat.full.text, /*special_tokens=*/false);
}

}  // namespace ds::inference
