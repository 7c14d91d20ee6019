#include "runtime/tokenizer/corpus/row_json.h"

#include <algorithm>
#include <array>

#include "runtime/base/json_text.h"

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

StatusOr<nlohmann::ordered_json> ParseNested(std::string_view text) {
  using OrderedJson = nlohmann::ordered_json;
  bool too_deep = false;
  const auto keep = [&](int depth, OrderedJson::parse_event_t, OrderedJson&) {
    too_deep = too_deep || depth > kMostNestedJson;
    return !too_deep;
  };
  OrderedJson parsed = OrderedJson::parse(text, keep, /*allow_exceptions=*/false);
  if (!too_deep) return parsed;
  return InvalidArgumentError("the JSON is nested more than " + std::to_string(kMostNestedJson) +
                              " deep");
}

Status CheckRow(std::string_view row) {
  if (const auto at = FindLoneSurrogate(row)) {
    return InvalidArgumentError("column " + std::to_string(*at + 1) + ": the escape " +
                                std::string(row.substr(*at, 6)) +
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
