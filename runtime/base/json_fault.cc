#include "runtime/base/json_fault.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/json_events.h"
#include "runtime/base/json_text.h"
#include "runtime/base/printable.h"
#include "runtime/base/utf8.h"

namespace ds {
namespace {

constexpr std::size_t kShownWordBytes = 60;
constexpr std::string_view kJsonBlanks = " \t\r\n", kWordEnds = ",]}[{: \t\r\n";

std::string Shown(std::string_view text) {
  if (text.size() <= kShownWordBytes) return Printable(text);
  return Printable(text.substr(0, ValidUtf8Prefix(text.substr(0, kShownWordBytes)))) + "...";
}

// Records the state of the parser at the position where it stops.
class Reading : public JsonEvents<nlohmann::json> {
 public:
  bool start_object(std::size_t /*size*/) override { return Open('{'); }
  bool start_array(std::size_t /*size*/) override { return Open('['); }
  bool key(string_t& /*name*/) override { return after_key_ = true; }
  bool string(string_t& /*value*/) override { return !(after_key_ = false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override {
    end_ = position;
    token_ = token;
    is_large_ = dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr;
    return false;
  }

  char open() const { return open_.empty() ? '\0' : open_.back(); }  // { or [
  bool after_key() const { return after_key_; }
  bool is_large() const { return is_large_; }
  // The end of the word that does not fit; past the text's end when the text ends early.
  std::size_t end() const { return end_; }
  const std::string& token() const { return token_; }

 private:
  bool Open(char bracket) {
    open_.push_back(bracket);
    after_key_ = false;
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  std::vector<char> open_;
  bool after_key_ = false, is_large_ = false;
  std::size_t end_ = 0;
  std::string token_;
};

// Returns true when the parser has stopped inside a string. `token` starts at the last quote that
// opened one.
bool IsInText(const std::string& token) {
  if (!token.starts_with('"')) return false;
  for (std::size_t at = 1; at < token.size(); ++at) {
    if (token[at] == '\\') {
      ++at;
    } else if (token[at] == '"') {
      return at + 1 == token.size() && !nlohmann::json::accept(token);
    }
  }
  return true;
}

JsonFault DescribeEnd(std::string_view json, const Reading& reading) {
  const bool is_empty = json.find_first_not_of(kJsonBlanks) == std::string_view::npos;
  const std::string inside = IsInText(reading.token()) ? "a text"
                             : reading.open() == '{'   ? "an object"
                             : reading.open() == '['   ? "a list"
                                                       : "a value";
  return {.offset = json.size(),
          .what = is_empty ? "it is empty" : "it ends inside " + inside + ": it is incomplete"};
}

// Names the missing token after the byte `before`, '\0' for none.
std::string NameMissing(char before, const Reading& reading) {
  if (before == ':') return "a value";
  if (reading.open() == '{') {
    if (before == '{' || before == ',') return "a key in quotes";
    return reading.after_key() && before == '"' ? "':' after a key" : "',' or '}'";
  }
  return before == '[' || before == ',' || before == '\0' ? "a value" : "',' or ']'";
}

// Describes a fault at a byte inside a quoted string.
JsonFault DescribeText(std::string_view json, std::size_t at) {
  if (const std::size_t valid = ValidUtf8Prefix(json); valid <= at) {
    return {.offset = valid, .what = "a byte in a text is not UTF-8"};
  }
  if (const auto lone = FindLoneSurrogate(json)) {
    return {.offset = *lone,
            .what = std::string(json.substr(*lone, 6)) +
                    " is a lone surrogate, half of a pair, and no character"};
  }
  if (json[at] == '\n') {
    return {.offset = at,
            .what =
                "a line ends inside a text: the closing quote is missing, or the line break is "
                "to be written as \\n"};
  }
  if (static_cast<unsigned char>(json[at]) < 0x20) {
    return {.offset = at,
            .what = "a control character in a text is to be written as \\u and four digits"};
  }
  return {.offset = at, .what = "an escape in a text (after \\) is none that JSON has"};
}

bool IsWordEnd(char c) { return kWordEnds.find(c) != std::string_view::npos; }

std::string_view WordFrom(std::string_view json, std::size_t begin) {
  if (IsWordEnd(json[begin])) return json.substr(begin, 1);
  return json.substr(begin, std::min(json.find_first_of(kWordEnds, begin), json.size()) - begin);
}

std::size_t BeginOfWord(std::string_view json, std::size_t last) {
  const std::size_t end = json.find_last_of(kWordEnds, last);
  return end == std::string_view::npos ? 0 : end + 1;
}

// Returns the start of the word that does not fit. `last` is the last byte of that word which was
// read, or the byte after it.
std::size_t FindWord(std::string_view json, std::size_t last, const std::string& token) {
  if (json[last] == '"') return last + 1 - std::min(token.size(), last + 1);
  if (!IsWordEnd(json[last])) return BeginOfWord(json, last);
  if (last == 0 || IsWordEnd(json[last - 1]) || json[last - 1] == '"') return last;
  const std::size_t before = BeginOfWord(json, last - 1);
  return nlohmann::json::accept(json.substr(before, last - before)) ? last : before;
}

// Describes a word that JSON does not have, or not at this position.
JsonFault DescribeWord(std::string_view json, std::size_t begin, const Reading& reading) {
  const std::size_t last = begin == 0 ? begin : json.find_last_not_of(kJsonBlanks, begin - 1);
  const char before = begin == 0 || last == std::string_view::npos ? '\0' : json[last];
  if (reading.open() == '\0' && before != '\0') {
    return {
        .offset = begin, .what = "there is more after the end of the JSON", .has_more_text = true};
  }
  const std::string_view word = WordFrom(json, begin);
  if (word[0] != '"' && !IsWordEnd(word[0]) && !nlohmann::json::accept(word)) {
    return {.offset = begin,
            .what = Shown(word) +
                    " is not JSON: texts are in double quotes, others are numbers, true, false and "
                    "null"};
  }
  return {.offset = begin, .what = NameMissing(before, reading) + " is missing"};
}

}  // namespace

std::optional<JsonFault> FindJsonFault(std::string_view json) {
  Reading reading;
  if (nlohmann::json::sax_parse(json, &reading)) return std::nullopt;
  if (reading.end() > json.size() || json.empty()) return DescribeEnd(json, reading);
  const std::size_t last = reading.end() == 0 ? 0 : reading.end() - 1;
  if (reading.is_large()) {
    const std::size_t begin = last + 1 - std::min(reading.token().size(), last + 1);
    return JsonFault{.offset = begin,
                     .what = "the number " + Shown(reading.token()) +
                             " is larger than the largest double, 1.8e308"};
  }
  if (IsInText(reading.token())) return DescribeText(json, last);
  return DescribeWord(json, FindWord(json, last, reading.token()), reading);
}

std::string DescribeJsonFault(std::string_view json) {
  const auto fault = FindJsonFault(json);
  if (!fault) return "it cannot be read as JSON";
  const std::string_view before = json.substr(0, fault->offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n') + 1;  // 0 on the first line
  return "line " + std::to_string(line) + ", column " + std::to_string(fault->offset - start + 1) +
         ": " + fault->what;
}

}  // namespace ds
