#pragma once

// Checks that one JSON value fits one key: type, choices, range. Pure.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/config/keys/setting.h"

namespace ds::config {

// The default; null for a key that has none.
nlohmann::ordered_json DefaultValue(const Setting& setting);

// True when `value` is the default, whatever way its numbers are written (1 is 1.0 is 1e0).
bool IsDefault(const Setting& setting, const nlohmann::ordered_json& value);

// True when `value` is in a JSON list of the registry (choices, harmless).
bool IsInList(std::string_view list_json, const nlohmann::ordered_json& value);

// Says what is wrong with `value`, as the end of a sentence that begins with the key ("must be a
// whole number, not true"), or nothing. A fitting value is put into its usual form: 5e8 becomes a
// whole number where one is wanted, a choice gets the registry's spelling.
std::optional<std::string> CheckValue(const Setting& setting, nlohmann::ordered_json* value);

// The value as a message shows it: JSON, cut when long.
std::string ShortDump(const nlohmann::ordered_json& value);

// A JSON list as a message shows it: `"a", "b" or "c"`.
std::string ListAlternatives(std::string_view list_json);

}  // namespace ds::config
