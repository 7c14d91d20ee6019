#pragma once

// Reads the parts of a row that are passed to a chat template, its messages and variables, in the
// form that templates of transformers expect.
//
// Pure. Errors are kInvalidArgument and name the message, counted from 1, and the key. Thread-safe.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/row.h"

namespace ds::tokenizer {

// Fills in `messages` and `in_loss`. `list` is the value under `key`: messages as {"role",
// "content"} or as ShareGPT's {"from", "value"}. Null keys of a message are removed, except
// "content", which templates compare with none. Nulls in the arguments of calls are kept. Arguments
// of tool calls become objects. "weight" (or "train", "training") sets whether a message
// contributes to the loss, and is removed.
Status ReadMessages(const nlohmann::ordered_json& list, const std::string& key,
                    const RowOptions& options, ChatRow* chat);

// Returns the template's variables of a row: tools as a list, and "chat_template_kwargs".
StatusOr<nlohmann::ordered_json> ReadVariables(const nlohmann::ordered_json& row,
                                               const RowOptions& options);

// Rejects more than one tool call in a message where the row has "parallel_tool_calls": false.
Status CheckToolCalls(const nlohmann::ordered_json& row, const ChatRow& chat);

// Returns true for a non-empty array, object or text, and for other values.
bool HasValue(const nlohmann::ordered_json& row, const std::string& key);

// Returns the key in quotes, for error messages.
std::string Quoted(const std::string& key);

}  // namespace ds::tokenizer
