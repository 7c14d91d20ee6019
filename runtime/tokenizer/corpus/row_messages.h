#pragma once

// The parts of a row that a chat template reads: its messages and its variables, in the form in
// which templates of transformers read them.
//
// Pure. Errors are kInvalidArgument and name the message, counted from 1, and the key. Threads:
// any.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/row.h"

namespace ds::tokenizer {

// Fills in messages and learnt. `list` is the value under `key`: messages as {"role", "content"} or
// as ShareGPT's {"from", "value"}. A message's own keys with null are left out, but for "content",
// which templates compare with none. Nulls in arguments of calls stay. Arguments of tool calls
// become objects. "weight" (or "train", "training") says whether a message is learnt, and is left
// out.
Status ReadMessages(const nlohmann::ordered_json& list, const std::string& key,
                    const RowOptions& options, ChatRow* chat);

// The template's variables of a row: tools as a list, and "chat_template_kwargs".
StatusOr<nlohmann::ordered_json> ReadVariables(const nlohmann::ordered_json& row,
                                               const RowOptions& options);

// Refuses more than one tool call in a message where the row has "parallel_tool_calls": false.
Status CheckToolCalls(const nlohmann::ordered_json& row, const ChatRow& chat);

// True for an array or object with something in it, a text that is not empty, and other values.
bool HasValue(const nlohmann::ordered_json& row, const std::string& key);

// The key between quotes, for messages.
std::string Quoted(const std::string& key);

}  // namespace ds::tokenizer
