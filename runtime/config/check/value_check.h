#pragma once

// Checks that one JSON value fits one key: type, choices and range. Pure.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/config/keys/setting.h"

namespace ds::config {

// Returns the default; null for a key without one.
nlohmann::ordered_json DefaultValue(const Setting& setting);

// Returns true if `value` is the default, however its numbers are written (1 is 1.0 is 1e0).
bool IsDefault(const Setting& setting, const nlohmann::ordered_json& value);

// Returns true if `value` is in a JSON list of the registry (choices, harmless).
bool IsInList(std::string_view list_json, const nlohmann::ordered_json& value);

// Returns the problem with `value`, as the end of a sentence that begins with the key ("must be a
// whole number, not true"), or nothing. Converts a fitting value to its usual form: 5e8 becomes an
// integer where the key is an integer, and a choice gets the registry's spelling.
std::optional<std::string> CheckValue(const Setting& setting, nlohmann::ordered_json* value);

// Formats a value for a message: JSON, truncated when long.
std::string ShortDump(const nlohmann::ordered_json& value);

// Formats a JSON list for a message: `"a", "b" or "c"`.
std::string ListAlternatives(std::string_view list_json);

}  // namespace ds::config
