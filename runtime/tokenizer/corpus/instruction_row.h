#pragma once

// Rows with "instruction", "input" and "output", as Alpaca has them: their prompt as a text or as a
// conversation.
//
// Pure. Errors are kInvalidArgument and name the key. Threads: any.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/row.h"

namespace ds::tokenizer {

// Stanford Alpaca's prompt, with an input or without. Refuses keys that it has no place for.
StatusOr<std::string> WriteAlpacaPrompt(const nlohmann::ordered_json& row);

// The turns of "history", then the instruction with the input on lines of its own, as LLaMA-Factory
// writes them. The answers of the history are learnt.
StatusOr<ChatRow> ReadInstructionChat(const nlohmann::ordered_json& row);

}  // namespace ds::tokenizer
