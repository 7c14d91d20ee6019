#pragma once

// The methods of texts, lists and dicts that chat templates call. Methods that modify a list or a
// dict do not exist, as in Jinja's immutable sandbox. Pure.

#include <string>

#include "runtime/tokenizer/chat/arguments.h"

namespace ds::tokenizer {

bool HasMethod(const Value& value, const std::string& name);

// Requires HasMethod.
StatusOr<Value> CallMethod(const Value& value, const std::string& name, const Arguments& arguments);

// Implements Python's str.strip, lstrip and rstrip: removes `characters` (white space when empty)
// from the ends.
std::string StripText(std::string_view text, std::string_view characters, bool left, bool right);
// Implements str.replace; `most` below 0 replaces all. Spends the size of the result before making
// it.
StatusOr<std::string> ReplaceText(std::string_view text, std::string_view what,
                                  std::string_view with, std::int64_t most, Budget* budget);
// Implement str.upper, lower, title and capitalize.
std::string UpperText(std::string_view text);
std::string LowerText(std::string_view text);
std::string TitleText(std::string_view text);
std::string CapitalizeText(std::string_view text);

}  // namespace ds::tokenizer
