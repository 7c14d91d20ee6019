#pragma once

// ChatTemplate renders messages to text with the Jinja template of a Hugging Face folder. The text
// equals the output of transformers' apply_chat_template.
//
// A template is untrusted code: it reads no file, changes nothing, and is bounded in time and
// memory. Supported Jinja: for (with if and else), if, set, set blocks, macro, break, continue,
// generation, raw, and all operators, filters, tests and methods used by published templates.
// include, import, extends, call and filter blocks are rejected.
//
// Thread-safe: const functions may be called concurrently.

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/chat/renderer.h"
#include "runtime/tokenizer/chat/syntax.h"

namespace ds::tokenizer {

struct ChatOptions {
  bool add_generation_prompt = false;
  // More variables of the template: tools, documents, bos_token, enable_thinking ...
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::optional<std::tm> now;  // for strftime_now; absent: the current time
  RenderLimits limits;
};

struct RenderedChat {
  std::string text;
  // Byte ranges of the assistant's words: the output of {% generation %} blocks.
  std::vector<Span> generated;
  // The parts of the text by message, in the order of the text. Output outside the template's loops
  // over the messages belongs to no part.
  std::vector<ChatTurn> turns;
};

class ChatTemplate {
 public:
  // Errors name the line of the template.
  static StatusOr<ChatTemplate> Parse(std::string_view source);

  // Renders `messages`, a list of objects with role and content. An error raised by the template is
  // kInvalidArgument, with the template's message.
  StatusOr<RenderedChat> Render(const nlohmann::ordered_json& messages,
                                const ChatOptions& options = {}) const;

 private:
  explicit ChatTemplate(StatementList block) : block_(std::move(block)) {}
  StatementList block_;
};

}  // namespace ds::tokenizer
