#pragma once

// Values of Parquet and Arrow columns for which JSON has no place, as the plugin (arrow_plugin.h)
// writes them into rows: {"arrow": TYPE} for a value of a type that is not read, as bytes and dates
// are.
//
// Pure. Threads: any.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ds::tokenizer {

inline constexpr char kArrowTypeKey[] = "arrow";

// Says which of the row's values under `keys` have a type that is no text, and what to do; ""
// where none has.
std::string AdviseOnArrowTypes(const nlohmann::ordered_json& row,
                               const std::vector<std::string>& keys);

}  // namespace ds::tokenizer
