#pragma once

// The encoding of Parquet and Arrow values that JSON cannot represent, as the plugin
// (arrow_plugin.h) writes them into rows. A value of an unsupported type, such as bytes and dates,
// is {"arrow": TYPE}. A row with invalid JSON in a JSON column is replaced by a single key,
// kArrowFaultKey.
//
// Pure. Thread-safe.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

inline constexpr char kArrowTypeKey[] = "arrow";
// Its value is {"column": name, "text": text}.
inline constexpr char kArrowFaultKey[] = "arrow_fault";

// Returns an error with the problem of a JSON column, if the row is such a replacement.
Status CheckArrowColumns(const nlohmann::ordered_json& row);

// Describes the row's values under `keys` that are not texts because of their type, and suggests a
// fix; "" where there are none.
std::string AdviseOnArrowTypes(const nlohmann::ordered_json& row,
                               const std::vector<std::string>& keys);

}  // namespace ds::tokenizer
