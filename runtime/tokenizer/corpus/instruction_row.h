#pragma once

// Reads rows with "instruction", "input" and "output", Alpaca's format, as a text prompt or as a
// conversation.
//
// Pure. Errors are kInvalidArgument and name the key. Thread-safe.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/row.h"

namespace ds::tokenizer {

// Writes Stanford Alpaca's prompt, with or without an input. Rejects keys that the prompt cannot
// hold.
StatusOr<std::string> WriteAlpacaPrompt(const nlohmann::ordered_json& row);

// Returns the turns of "history", then the instruction and, on lines of its own, the input, as
// LLaMA-Factory does. The answers of the history contribute to the loss.
StatusOr<ChatRow> ReadInstructionChat(const nlohmann::ordered_json& row);

}  // namespace ds::tokenizer
