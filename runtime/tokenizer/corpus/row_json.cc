#include "runtime/tokenizer/corpus/row_json.h"

#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

namespace ds::tokenizer {
namespace {

constexpr auto kWords = std::to_array<std::string_view>({"NaN", "Infinity", "-Infinity"});

// The end of a text whose opening quote is at `at`.
std::size_t EndOfText(std::string_view row, std::size_t at) {
  for (++at; at < row.size() && row[at] != '"'; ++at) {
    if (row[at] == '\\') ++at;
  }
  return std::min(at + 1, row.size());
}

// The code unit of a \uXXXX at `at`; nothing for other characters.
std::optional<unsigned> UnitAt(std::string_view row, std::size_t at) {
  if (row.size() < at + 6 || row[at] != '\\' || row[at + 1] != 'u') return std::nullopt;
  unsigned unit = 0;
  for (std::size_t i = at + 2; i < at + 6; ++i) {
    const auto c = static_cast<unsigned char>(row[i]);
    if (std::isxdigit(c) == 0) return std::nullopt;
    unit = unit * 16 +
           static_cast<unsigned>(std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
  }
  return unit;
}

bool IsHigh(std::optional<unsigned> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool IsLow(std::optional<unsigned> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

// Finds an escape that stands for half a character; npos where there is none.
std::size_t FindLoneSurrogate(std::string_view row) {
  for (std::size_t at = 0; at < row.size(); ++at) {
    if (row[at] != '\\') continue;
    const auto unit = UnitAt(row, at);
    if (IsHigh(unit) && IsLow(UnitAt(row, at + 6))) {
      at += 11;
    } else if (IsHigh(unit) || IsLow(unit)) {
      return at;
    } else {
      ++at;  // the escaped character
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::string_view ReplaceNaN(std::string_view row, std::string* changed) {
  if (row.find("NaN") == std::string_view::npos && row.find("Infinity") == std::string_view::npos) {
    return row;
  }
  changed->clear();
  for (std::size_t at = 0; at < row.size();) {
    std::size_t size = 1;
    bool is_word = false;
    if (row[at] == '"') {
      size = EndOfText(row, at) - at;
    } else {
      for (const std::string_view word : kWords) {
        if (row.substr(at).starts_with(word)) {
          is_word = true;
          size = word.size();
        }
      }
    }
    *changed += is_word ? "null" : row.substr(at, size);
    at += size;
  }
  return *changed;
}

Status CheckRow(std::string_view row) {
  if (const std::size_t at = FindLoneSurrogate(row); at != std::string_view::npos) {
    return InvalidArgumentError("column " + std::to_string(at + 1) + ": the escape " +
                                std::string(row.substr(at, 6)) +
                                " is a lone surrogate, half of a character, which is no Unicode "
                                "text: mend the row, or pass over it with --on_bad_data skip");
  }
  try {
    const auto json = nlohmann::json::parse(row);
    if (json.is_object()) return OkStatus();
    return InvalidArgumentError(std::string("the row is no JSON object but ") +
                                (json.is_array() ? "a list" : "a single value"));
  } catch (const nlohmann::json::parse_error& error) {
    std::string reason = error.what();
    if (const std::size_t at = reason.find(": "); at != std::string::npos) reason.erase(0, at + 2);
    return InvalidArgumentError("the row is no JSON: column " + std::to_string(error.byte) + ": " +
                                reason);
  }
}

}  // namespace ds::tokenizer
