#include "runtime/tokenizer/corpus/row_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/json_events.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/json_text.h"
#include "runtime/base/parse_number.h"

namespace ds::tokenizer {
namespace {

constexpr auto kWords = std::to_array<std::string_view>({"NaN", "Infinity", "-Infinity"});

// Returns the end of the string with its opening quote at `at`.
std::size_t EndOfText(std::string_view row, std::size_t at) {
  for (++at; at < row.size() && row[at] != '"'; ++at) {
    if (row[at] == '\\') ++at;
  }
  return std::min(at + 1, row.size());
}

// Number of bytes of unreadable text that an error shows.
constexpr std::size_t kQuotedBytes = 80;
// The first double that is beyond 64-bit integers.
constexpr double kPast64Bits = 9223372036854775808.0;

bool IsLongInteger(std::string_view number) {
  if (number.find_first_not_of("-0123456789") != std::string_view::npos) return false;
  return number.size() > 18 && !ParseNumber<std::int64_t>(number);
}

// Rejects an integer of more than 64 bits at a nesting depth of `depth` or more, with its column: a
// double would keep only its first digits.
Status RefuseLongInteger(std::string_view json, int depth) {
  int open = 0;
  for (std::size_t at = 0; at < json.size();) {
    std::size_t end = at + 1;
    if (json[at] == '"') {
      end = EndOfText(json, at);
    } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
      end = std::min(json.find_first_not_of("-+.eE0123456789", at), json.size());
      if (open >= depth && IsLongInteger(json.substr(at, end - at))) {
        return InvalidArgumentError("column " + std::to_string(at + 1) + ": the whole number " +
                                    std::string(json.substr(at, std::min(end - at, kQuotedBytes))) +
                                    " does not fit in 64 bits, and would lose digits: write it as "
                                    "a text, in quotes");
      }
    } else {
      open += (json[at] == '{' || json[at] == '[') ? 1 : 0;
      open -= (json[at] == '}' || json[at] == ']') ? 1 : 0;
    }
    at = end;
  }
  return OkStatus();
}

// Checks a text for problems that the parsed value would not show, or only slowly: an ordered
// object searches all of its keys for each new one.
class JsonWatch : public JsonEvents<nlohmann::ordered_json> {
 public:
  explicit JsonWatch(int exact_depth) : exact_depth_(exact_depth) {}

  bool null() override { return Value(); }
  bool boolean(bool /*value*/) override { return Value(); }
  bool string(string_t& /*value*/) override { return Value(); }
  bool number_integer(number_integer_t /*value*/) override { return Value(); }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Number(value);
  }
  bool start_object(std::size_t /*size*/) override {
    keys_.emplace_back();
    return Open();
  }
  bool start_array(std::size_t /*size*/) override { return Open(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second && !twice_) twice_ = name;
    too_many_ = keys_.back().size() > kMostRowKeys;
    return !too_many_;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  Status Check(std::string_view text) const {
    if (too_deep_) {
      return InvalidArgumentError("the JSON is nested more than " +
                                  std::to_string(kMostNestedJson) + " deep");
    }
    if (too_many_) {
      return InvalidArgumentError("an object has more than " + std::to_string(kMostRowKeys) +
                                  " keys: leave out those that are not read, or make a list of "
                                  "them");
    }
    if (twice_) {
      return InvalidArgumentError("an object has the key " +
                                  nlohmann::ordered_json(*twice_).dump() + " twice: leave one out");
    }
    return is_large_ ? RefuseLongInteger(text, exact_depth_) : OkStatus();
  }

 private:
  bool Value() { return !(too_deep_ = depth_ > kMostNestedJson); }
  bool Number(double value) {
    is_large_ = is_large_ || (depth_ >= exact_depth_ && std::abs(value) >= kPast64Bits);
    return Value();
  }
  bool Open() { return Value() && ++depth_ > 0; }

  const int exact_depth_;
  int depth_ = 0;
  bool too_deep_ = false, too_many_ = false, is_large_ = false;
  std::vector<std::set<std::string>> keys_;  // of the open objects
  std::optional<std::string> twice_;
};

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

StatusOr<nlohmann::ordered_json> ParseNested(std::string_view text, int exact_depth) {
  using OrderedJson = nlohmann::ordered_json;
  // Parsed twice: a parser with a callback searches all earlier elements after each one.
  JsonWatch watch(exact_depth);
  const bool is_json = OrderedJson::sax_parse(text, &watch);
  DS_RETURN_IF_ERROR(watch.Check(text));
  if (!is_json) return OrderedJson(OrderedJson::value_t::discarded);
  return OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

Status CheckRow(std::string_view row) {
  if (const auto at = FindLoneSurrogate(row)) {
    return InvalidArgumentError("column " + std::to_string(*at + 1) + ": the escape " +
                                std::string(row.substr(*at, 6)) +
                                " is a lone surrogate, half of a character, which is not valid "
                                "Unicode: fix the row, or skip it with --on_bad_data skip");
  }
  if (const auto fault = FindJsonFault(row)) {
    const std::string location = "column " + std::to_string(fault->offset + 1) + ": ";
    if (!fault->has_more_text) {
      return InvalidArgumentError("the row is no JSON: " + location + fault->what);
    }
    return InvalidArgumentError(location +
                                "a line of .jsonl is one row, and something follows it; a "
                                "file with several rows on a line is to be named .json");
  }
  const std::size_t begin = row.find_first_not_of(" \t\r\n");
  if (row.substr(begin).starts_with('{')) return OkStatus();
  return InvalidArgumentError(std::string("the row is no JSON object but ") +
                              (row.substr(begin).starts_with('[') ? "a list" : "a single value"));
}

}  // namespace ds::tokenizer
