#pragma once

// WriteChat: a conversation as the chat template of a folder writes it.
//
// Errors are the template's, or kFailedPrecondition without one. Threads: any.

#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/row.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::tokenizer {

struct WrittenChat {
  // Messages and options with which the template wrote the text. The content of messages is a list
  // of parts only where the template reads such lists: for others the texts of a message are one,
  // with a line break between them. Arguments of calls are JSON text for a template that fails on
  // objects (DeepSeek-V3's).
  nlohmann::ordered_json messages;
  ChatOptions options;
  RenderedChat whole;
};

// `add_generation_prompt` ends the text with the head of the assistant's next message.
StatusOr<WrittenChat> WriteChat(const ChatRow& chat, const TokenizerFolder& folder,
                                bool add_generation_prompt = false);

}  // namespace ds::tokenizer
