#include "runtime/inference/generation_inputs.h"

#include <nlohmann/json.hpp>
#include <utility>

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
  if (tokens.empty()) return InvalidArgumentError("there is no token in it to go on from");
  return tokens;
}

StatusOr<std::vector<std::int64_t>> PromptEncoder::Encode(const nlohmann::ordered_json& prompt) {
  if (prompt.is_string()) return EncodeText(prompt.get<std::string>(), /*special_tokens=*/true);
  if (folder_ == nullptr || !folder_->chat_template) {
    return FailedPreconditionError(
        "a conversation needs a chat template, and the tokenizer's folder has none (neither "
        "chat_template.jinja nor \"chat_template\" in tokenizer_config.json)");
  }
  DS_ASSIGN_OR_RETURN(
      const tokenizer::RenderedChat chat,
      folder_->chat_template->Render(
          prompt, {.add_generation_prompt = true, .variables = folder_->chat_variables}));
  return EncodeText(chat.text, /*special_tokens=*/false);
}

}  // namespace ds::inference
