#include "cli/translate/sources.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Line {
  int number = 0;
  std::size_t indent = 0;
  std::string text;  // without surrounding blanks and without its comment
};

Status Refuse(int line, const std::string& message) {
  return InvalidArgumentError("line " + std::to_string(line) + ": " + message);
}

std::string Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \r") + 1 - first));
}

// Removes a comment: a '#' at the start or after a blank, outside quotes.
std::string_view WithoutComment(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == '\\' && quote == '"')
        ++i;
      else if (text[i] == quote)
        quote = 0;
    } else if ((text[i] == '"' || text[i] == '\'') && (i == 0 || text[i - 1] == ' ')) {
      quote = text[i];
    } else if (text[i] == '#' && (i == 0 || text[i - 1] == ' ')) {
      return text.substr(0, i);
    }
  }
  return text;
}

StatusOr<std::vector<Line>> SplitLines(std::string_view text) {
  std::vector<Line> lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (whole.find('\t') != std::string_view::npos) return Refuse(number, "a tab; write blanks");
    Line line{.number = number, .text = Trimmed(WithoutComment(whole))};
    if (line.text.empty() || (line.text == "---" && lines.empty())) continue;
    line.indent = whole.find_first_not_of(' ');
    lines.push_back(std::move(line));
  }
  return lines;
}

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Reads a plain word by the rules of YAML 1.1.
Json PlainScalar(const std::string& word) {
  if (IsOneOf(word, {"null", "Null", "NULL", "~", ""})) return nullptr;
  if (IsOneOf(word, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (IsOneOf(word, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) {
    return false;
  }
  if (const auto whole = ParseNumber<std::int64_t>(word)) return *whole;
  // PyYAML reads numbers without a point as texts, including "1e5".
  const bool has_digit = word.find_first_of("0123456789") != std::string::npos;
  if (has_digit && word.find('.') != std::string::npos) {
    if (const auto number = ParseNumber<double>(word)) return *number;
  }
  return word;
}

// True for octal, hexadecimal, sexagesimal and grouped numbers: 017, 0x1f, 1:30, 1_000.
bool IsOtherNumber(const std::string& word) {
  const bool is_digits =
      !word.empty() && word.find_first_not_of("0123456789abcdefxABCDEF_:+-") == std::string::npos;
  if (!is_digits || word[0] < '0' || word[0] > '9') return false;
  return (word[0] == '0' && word.size() > 1) || word.find_first_of("_:") != std::string::npos;
}

StatusOr<Json> QuotedScalar(const Line& line, const std::string& word) {
  const char quote = word.front();
  if (word.size() < 2 || word.back() != quote) {
    return Refuse(line.number, "a quoted text that does not end in the same line");
  }
  const std::string inner = word.substr(1, word.size() - 2);
  if (quote == '"') {
    const Json text = Json::parse(word, nullptr, /*allow_exceptions=*/false);
    if (text.is_string()) return text;
    return Refuse(line.number, "a text in double quotes with an escape that is not JSON's");
  }
  std::string text;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    text += inner[i];
    if (inner[i] != '\'') continue;
    if (i + 1 == inner.size() || inner[i + 1] != '\'') {
      return Refuse(line.number, "a quote inside of a quoted text; write it twice");
    }
    ++i;
  }
  return Json(text);
}

StatusOr<Json> Scalar(const Line& line, const std::string& word) {
  if (word == "{}") return Json::object();
  if (word == "[]") return Json::array();
  if (!word.empty() && (word.front() == '"' || word.front() == '\'')) {
    return QuotedScalar(line, word);
  }
  constexpr std::string_view kSpecial = "&*!|>%@`{[";
  if (!word.empty() && kSpecial.find(word.front()) != std::string_view::npos) {
    return Refuse(line.number, "'" + word +
                                   "' is beyond the YAML that is read here: plain "
                                   "values, quoted texts, {}, []");
  }
  if (IsOtherNumber(word)) {
    return Refuse(line.number, word + " may be a number in another base; write it in quotes");
  }
  if (word.find(": ") != std::string::npos) return Refuse(line.number, "two ':' in one line");
  return PlainScalar(word);
}

class Reader {
 public:
  explicit Reader(std::vector<Line> lines) : lines_(std::move(lines)) {}

  StatusOr<Json> ReadAll() {
    if (lines_.empty()) return Json(Json::object());
    DS_ASSIGN_OR_RETURN(Json root, ReadMapping(lines_[0].indent, /*depth=*/0));
    if (at_ < lines_.size()) {
      return Refuse(lines_[at_].number, "indented less than the lines before");
    }
    return root;
  }

 private:
  static constexpr int kDeepest = 2;

  static bool IsItem(const Line& line) { return line.text == "-" || line.text.starts_with("- "); }

  StatusOr<Json> ReadMapping(std::size_t indent, int depth) {
    Json mapping = Json::object();
    while (at_ < lines_.size() && lines_[at_].indent == indent && !IsItem(lines_[at_])) {
      const Line line = lines_[at_++];
      const std::size_t colon = line.text.find(':');
      const bool splits = colon != std::string::npos &&
                          (colon + 1 == line.text.size() || line.text[colon + 1] == ' ');
      if (!splits || colon == 0) return Refuse(line.number, "expected NAME: VALUE");
      const std::string name = line.text.substr(0, colon);
      if (mapping.contains(name)) return Refuse(line.number, name + " is given twice");
      DS_ASSIGN_OR_RETURN(mapping[name],
                          ReadValue(line, Trimmed(line.text.substr(colon + 1)), depth));
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent) {
      return Refuse(lines_[at_].number, "indented more than the lines before");
    }
    return mapping;
  }

  // Reads the value of a name, from its line or from the lines below.
  StatusOr<Json> ReadValue(const Line& line, const std::string& word, int depth) {
    if (!word.empty()) return Scalar(line, word);
    if (at_ == lines_.size()) return Json();
    const Line& next = lines_[at_];
    if (IsItem(next) && next.indent >= line.indent) return ReadList(next.indent);
    if (next.indent <= line.indent) return Json();
    if (depth + 1 >= kDeepest) return Refuse(next.number, "nested deeper than two levels");
    return ReadMapping(next.indent, depth + 1);
  }

  StatusOr<Json> ReadList(std::size_t indent) {
    Json list = Json::array();
    while (at_ < lines_.size() && lines_[at_].indent == indent && IsItem(lines_[at_])) {
      const Line& line = lines_[at_++];
      DS_ASSIGN_OR_RETURN(Json element, Scalar(line, Trimmed(line.text.substr(1))));
      list.push_back(std::move(element));
    }
    return list;
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

StatusOr<Json> ReadFlatYaml(std::string_view text) {
  DS_ASSIGN_OR_RETURN(std::vector<Line> lines, SplitLines(text));
  return Reader(std::move(lines)).ReadAll();
}

}  // namespace ds::cli
