#pragma once

// Options for turning rows of data into documents: the keys that are read, and the maximum length
// of a document.

#include <cstdint>
#include <string>

namespace ds::tokenizer {

// The keys under which rows hold their parts. Empty: the default keys.
struct RowOptions {
  std::string text_field;        // a row is the text under this key
  std::string messages_field;    // a row is the conversation under this key
  std::string prompt_field;      // a row is a prompt with a completion
  std::string completion_field;  // the same
  std::string tools_field;
  std::string role_field, content_field;  // of messages
  // The rendering of an "instruction": "chat" uses the chat template, "alpaca" uses Stanford
  // Alpaca's prompt. Empty: the template if there is one.
  std::string prompt_style;

  friend bool operator==(const RowOptions&, const RowOptions&) = default;
};

struct DocumentOptions {
  RowOptions rows;
  // Number of tokens to which a document is truncated, as in TRL; 0: no limit. Keeps the first
  // tokens, or the last with `keeps_end`. A document without a loss token in the kept part is left
  // out.
  std::int64_t max_length = 0;
  bool keeps_end = false;
  // In a completion, only the assistant's messages contribute to the loss, as with TRL's
  // assistant_only_loss. Rejects rows without messages.
  bool assistant_only = false;

  friend bool operator==(const DocumentOptions&, const DocumentOptions&) = default;
};

}  // namespace ds::tokenizer
