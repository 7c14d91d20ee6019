#pragma once

// ReadRow: one row of training data, a JSON object on a line, as a text or a conversation with the
// part that is learnt. TRL, ShareGPT, Alpaca, OpenAI and KTO define the formats; `dsrun help rows`
// describes them to users.
//
// A key with null is absent. A known key with a meaning is honoured, or refused by its name; other
// keys are ignored.
//
// Pure: no tokenizer and no chat template. Errors are kInvalidArgument and name the key. Threads:
// any.

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

// All of it is learnt.
struct TextRow {
  std::string text;
};

// The completion is learnt.
struct CompletionRow {
  std::string prompt, completion;
};

// Messages as chat templates read them: role, content, tool_calls ...
struct ChatRow {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  // The template gets these: "tools", and the entries of "chat_template_kwargs".
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // Learnt are the assistant's messages for which this is true, by message.
  std::vector<bool> learnt;
  // In their place: everything that follows the prompt, the first prompt_messages messages.
  std::optional<std::size_t> prompt_messages;
};

// Nothing of it is to be learnt: "label" is false.
struct RejectedRow {};

using Row = std::variant<TextRow, CompletionRow, ChatRow, RejectedRow>;

// `has_template` decides how instructions are written where options.prompt_style is empty.
StatusOr<Row> ReadRow(std::string_view line, const RowOptions& options, bool has_template);

// A row to be answered: its prompt, or its conversation so far. Only TextRow and ChatRow.
StatusOr<Row> ReadPromptRow(std::string_view line, const RowOptions& options, bool has_template);

}  // namespace ds::tokenizer
