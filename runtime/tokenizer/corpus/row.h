#pragma once

// ReadRow parses one row of training data, a JSON object on a line, as a text or a conversation.
// The result marks the part that contributes to the loss. TRL, ShareGPT, Alpaca, OpenAI and KTO
// define the formats; `dsrun help rows` documents them for users.
//
// A key with null counts as absent. A known key is honoured, or rejected by name; other keys are
// ignored.
//
// Pure: needs no tokenizer and no chat template. Errors are kInvalidArgument and name the key.
// Thread-safe.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/document_options.h"

namespace ds::tokenizer {

// The full text contributes to the loss.
struct TextRow {
  std::string text;
};

// Only the completion contributes to the loss.
struct CompletionRow {
  std::string prompt, completion;
};

// Messages in the form of chat templates: role, content, tool_calls ...
struct ChatRow {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  // Variables passed to the template: "tools", and the entries of "chat_template_kwargs".
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // By message: an assistant's message contributes to the loss if this is true.
  std::vector<bool> in_loss;
  // Replaces `in_loss`: everything after the prompt contributes to the loss. The prompt is the
  // first prompt_messages messages.
  std::optional<std::size_t> prompt_messages;
};

// A row to skip: its "label" is false.
struct RejectedRow {};

using DataRow = std::variant<TextRow, CompletionRow, ChatRow, RejectedRow>;

// Parses a row. `has_template` selects the rendering of instructions where options.prompt_style is
// empty.
StatusOr<DataRow> ReadRow(std::string_view line, const RowOptions& options, bool has_template);

// Parses a row to be answered: its prompt, or its conversation so far. Returns TextRow or ChatRow
// only.
StatusOr<DataRow> ReadPromptRow(std::string_view line, const RowOptions& options,
                                bool has_template);

}  // namespace ds::tokenizer
