#pragma once

// The choices that decide how rows of data become documents: the keys that are read, and the length
// at which a document is cut off.

#include <cstdint>
#include <string>

namespace ds::tokenizer {

// The keys under which rows hold their parts. Empty: the usual ones.
struct RowOptions {
  std::string text_field;        // a row is the text under this key
  std::string messages_field;    // a row is the conversation under this key
  std::string prompt_field;      // a row is a prompt with a completion
  std::string completion_field;  // the same
  std::string tools_field;
  std::string role_field, content_field;  // of messages
  // Writes an "instruction": "chat" by the chat template, "alpaca" with Stanford Alpaca's prompt;
  // empty: by the template where there is one.
  std::string prompt_style;

  friend bool operator==(const RowOptions&, const RowOptions&) = default;
};

struct DocumentOptions {
  RowOptions rows;
  // Cuts a document off, as TRL does: 0, or the tokens that are kept, from its start on, or up to
  // its end. A document without a learnt token in the rest is left out.
  std::int64_t max_length = 0;
  bool keeps_end = false;
  // Learns only the assistant's messages of a completion, as TRL's assistant_only_loss does, and
  // refuses rows without messages.
  bool assistant_only = false;

  friend bool operator==(const DocumentOptions&, const DocumentOptions&) = default;
};

}  // namespace ds::tokenizer
