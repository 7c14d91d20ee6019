#pragma once

// The JSON of rows as Python's json module writes it: with NaN and Infinity, which JSON does not
// have. Pure.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::tokenizer {

// The most keys of one object of a row.
inline constexpr std::size_t kMostRowKeys = 10'000;

// The row with null in place of NaN, Infinity and -Infinity outside texts: no field that is read is
// one of these. Returns `row` itself where there are none; `changed` holds the other.
std::string_view ReplaceNaN(std::string_view row, std::string* changed);

// The JSON of a text; a discarded value where the text is no JSON. Refuses lists and objects
// that are nested deeper than kMostNestedJson, an object with a key twice or with more than
// kMostRowKeys, and whole numbers of more than 64 bits with a sign that stand in `exact_depth`
// lists and objects or more.
StatusOr<nlohmann::ordered_json> ParseNested(std::string_view text, int exact_depth = 0);

// OK for a JSON object; else the reason, with the column if it has one: a lone surrogate, a byte
// that is no UTF-8, a bracket that is missing, a number past the range of doubles.
Status CheckRow(std::string_view row);

}  // namespace ds::tokenizer
