#pragma once

// ChatTemplate: messages to the text that a model was trained on, by the Jinja template of its
// Hugging Face folder; the text that transformers' apply_chat_template makes.
//
// A template is a program from outside: it reads no file, changes nothing, and is bounded in time
// and memory. What it may use of Jinja: for (with if and else), if, set, set blocks, macro, break,
// continue, generation, raw, all operators, filters, tests and methods that published templates
// use. include, import, extends, call and filter blocks are refused.
//
// Threads: const functions may be called concurrently.

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
  // Further names of the template: tools, documents, bos_token, enable_thinking ...
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::optional<std::tm> now;  // for strftime_now; absent: the clock's
  RenderLimits limits;
};

struct RenderedChat {
  std::string text;
  // The assistant's words, in bytes of the text: what {% generation %} blocks have put out.
  std::vector<Span> generated;
  // The parts of the text by their messages, in the order of the text. Output outside of the
  // template's loops over the messages is in none.
  std::vector<ChatTurn> turns;
};

class ChatTemplate {
 public:
  // Errors name the line of the template.
  static StatusOr<ChatTemplate> Parse(std::string_view source);

  // `messages` is a list of objects with role and content. What the template raises is
  // kInvalidArgument, with the template's words.
  StatusOr<RenderedChat> Render(const nlohmann::ordered_json& messages,
                                const ChatOptions& options = {}) const;

 private:
  explicit ChatTemplate(Block block) : block_(std::move(block)) {}
  Block block_;
};

}  // namespace ds::tokenizer
