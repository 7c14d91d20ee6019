#pragma once

// Parses the JSON of rows in the dialect of Python's json module, with NaN and Infinity, which
// standard JSON does not have. Pure.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::tokenizer {

// Maximum number of keys in one object of a row.
inline constexpr std::size_t kMostRowKeys = 10'000;

// Replaces NaN, Infinity and -Infinity outside of strings by null. This loses nothing, as no field
// that is read holds one of these. Returns `row` itself where there are none; otherwise the result
// is stored in `changed`.
std::string_view ReplaceNaN(std::string_view row, std::string* changed);

// Parses a text; returns a discarded value if it is not JSON. Rejects lists and objects nested
// deeper than kMostNestedJson, an object with a duplicate key or with more than kMostRowKeys keys,
// and integers beyond signed 64 bits at a nesting depth of `exact_depth` or more.
StatusOr<nlohmann::ordered_json> ParseNested(std::string_view text, int exact_depth = 0);

// Returns OK for a JSON object; else the reason, with the column if known: a lone surrogate, a byte
// that is not UTF-8, a missing bracket, a number beyond the range of doubles.
Status CheckRow(std::string_view row);

}  // namespace ds::tokenizer
