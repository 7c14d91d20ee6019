#pragma once

// The methods of texts, lists and dicts that chat templates call. Those that would change a list or
// a dict do not exist, as in Jinja's immutable sandbox. Pure.

#include <string>

#include "runtime/tokenizer/chat/arguments.h"

namespace ds::tokenizer {

bool HasMethod(const Value& value, const std::string& name);

// Requires HasMethod.
StatusOr<Value> CallMethod(const Value& value, const std::string& name, const Arguments& arguments);

// Python's str.strip and its kind: takes `characters` (white space when empty) off the ends.
std::string StripText(std::string_view text, std::string_view characters, bool left, bool right);
// str.replace; `most` below 0 is all. What it makes is spent before it is made.
StatusOr<std::string> ReplaceText(std::string_view text, std::string_view what,
                                  std::string_view with, std::int64_t most, Budget* budget);
// str.upper and its kind.
std::string UpperText(std::string_view text);
std::string LowerText(std::string_view text);
std::string TitleText(std::string_view text);
std::string CapitalizeText(std::string_view text);

}  // namespace ds::tokenizer
