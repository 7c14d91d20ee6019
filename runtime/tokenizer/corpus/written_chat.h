#pragma once

// WriteChat renders a conversation with the chat template of a folder.
//
// Errors are the template's, or kFailedPrecondition without a template. Thread-safe.

#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/row.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::tokenizer {

struct WrittenChat {
  // The messages and options with which the template rendered the text. The content of messages is
  // a list of parts only if the template reads such lists; otherwise the texts of a message are
  // joined with line breaks. Arguments of calls are JSON text for a template that fails on objects
  // (DeepSeek-V3's).
  nlohmann::ordered_json messages;
  ChatOptions options;
  RenderedChat full;
};

// Renders a conversation. With `add_generation_prompt`, the text ends with the header of the
// assistant's next message.
StatusOr<WrittenChat> WriteChat(const ChatRow& chat, const TokenizerFolder& folder,
                                bool add_generation_prompt = false);

}  // namespace ds::tokenizer
