#pragma once

// Values of Parquet and Arrow columns for which JSON has no place, as the plugin (arrow_plugin.h)
// writes them into rows: {"arrow": TYPE} for a value of a type that is not read, as bytes and dates
// are; a row of kArrowFaultKey alone for one with a JSON column whose text is no JSON.
//
// Pure. Threads: any.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

inline constexpr char kArrowTypeKey[] = "arrow";
// Its value is {"column": name, "text": text}.
inline constexpr char kArrowFaultKey[] = "arrow_fault";

// Says what is wrong with the text of a JSON column, where the row is of that kind.
Status CheckArrowColumns(const nlohmann::ordered_json& row);

// Says which of the row's values under `keys` have a type that is no text, and what to do; ""
// where none has.
std::string AdviseOnArrowTypes(const nlohmann::ordered_json& row,
                               const std::vector<std::string>& keys);

}  // namespace ds::tokenizer
