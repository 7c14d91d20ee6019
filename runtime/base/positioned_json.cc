#include "runtime/base/positioned_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <set>
#include <utility>

#include "runtime/base/hjson_scanner.h"
#include "runtime/base/utf8.h"

namespace ds {
namespace {

using Json = nlohmann::ordered_json;

// Converts offsets to lines and columns. Reads the text once when the offsets ascend.
class PositionCounter {
 public:
  explicit PositionCounter(std::string_view text) : text_(text) {}

  JsonPosition At(std::size_t offset) {
    if (offset < next_) *this = PositionCounter(text_);
    for (; next_ < std::min(offset, text_.size()); ++next_) {
      const auto byte = static_cast<unsigned char>(text_[next_]);
      const bool continues_character = (byte & 0xC0) == 0x80;
      if (byte == '\n') {
        position_ = {position_.line + 1, 1};
      } else if (!continues_character) {
        ++position_.column;
      }
    }
    return position_;
  }

 private:
  std::string_view text_;
  std::size_t next_ = 0;
  JsonPosition position_{1, 1};
};

// Returns the text at `offset` for a message: short and printable.
std::string Describe(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return "the end of the file";
  constexpr std::size_t kShown = 20;
  constexpr std::string_view kPunctuation = ",:{}[]";
  const bool is_punctuation = kPunctuation.find(text[offset]) != std::string_view::npos;
  const std::size_t end =
      is_punctuation ? offset + 1 : text.find_first_of(" \t\r\n,:{}[]", offset + 1);
  std::string shown = "'";
  for (const char c : text.substr(offset, std::min(end - offset, kShown))) {
    const bool printable = c >= ' ' && c <= '~';
    char escaped[8] = {c};
    if (!printable) std::snprintf(escaped, sizeof escaped, "\\x%02x", c & 0xFF);
    shown += escaped;
  }
  return shown + "'";
}

// Parses the grammar of Hjson by recursive descent. A Read function returns false after a problem
// that stops the reader.
class HjsonReader {
 public:
  explicit HjsonReader(std::string_view text) : text_(text), scanner_(text), positions_(text) {}

  bool Read(JsonReading* out) {
    problems_ = &out->problems;
    if (const std::size_t valid = ValidUtf8Prefix(text_); valid < text_.size()) {
      return Problem(Describe(text_, valid) + " is not UTF-8", valid);
    }
    if (!SkipBlanks()) return false;
    const bool has_braces = scanner_.At('{') || scanner_.At('[');
    if (!(has_braces ? ReadValue(&out->root) : ReadRootWithoutBraces(&out->root))) return false;
    return SkipBlanks() && (scanner_.AtEnd() || Unexpected("the end of the file"));
  }

 private:
  enum class Closing { kBrace, kBracket, kEnd };

  bool SkipBlanks() { return scanner_.SkipBlanks() || ScannerProblem(); }

  bool ReadRootWithoutBraces(JsonNode* node) {
    node->position = positions_.At(scanner_.offset());
    node->scalar = Json::object();
    return scanner_.AtEnd() || ReadList(Closing::kEnd, node);
  }

  bool ReadValue(JsonNode* node) {
    node->position = positions_.At(scanner_.offset());
    if (scanner_.Take('{')) return ReadNested(Closing::kBrace, Json::object(), node);
    if (scanner_.Take('[')) return ReadNested(Closing::kBracket, Json::array(), node);
    if (scanner_.AtEnd() || scanner_.AtPunctuation()) return Unexpected("a value");
    if (scanner_.AtQuote()) {
      std::string text;
      if (!scanner_.ReadString(&text)) return ScannerProblem();
      node->scalar = std::move(text);
      return true;
    }
    const std::size_t begin = scanner_.offset();
    if (!scanner_.ReadBareValue(&node->scalar)) return ScannerProblem();
    if (node->scalar.is_string()) bare_text_ = begin;
    return true;
  }

  bool ReadNested(Closing closing, Json empty, JsonNode* node) {
    if (++depth_ > kMaxJsonDepth) return Problem("nested too deep", scanner_.offset() - 1);
    node->scalar = std::move(empty);
    const bool done = SkipBlanks() && (TakeClosing(closing) || ReadList(closing, node));
    --depth_;
    return done;
  }

  // Reads members or elements up to the closing token. At least one is there.
  bool ReadList(Closing closing, JsonNode* node) {
    std::set<std::string> names;
    const bool is_object = node->scalar.is_object();
    while (true) {
      if (!(is_object ? ReadMember(closing, &names, node) : ReadElement(node))) return false;
      if (!SkipBlanks()) return false;
      const bool has_comma = scanner_.Take(',');
      if (has_comma && !SkipBlanks()) return false;
      if (TakeClosing(closing)) return true;
      if (scanner_.AtEnd()) return Unexpected(ExpectedBeforeEnd(closing, has_comma));
    }
  }

  bool ReadElement(JsonNode* node) { return ReadValue(&node->elements.emplace_back()); }

  bool ReadMember(Closing closing, std::set<std::string>* names, JsonNode* node) {
    const std::size_t begin = scanner_.offset();
    if (scanner_.AtEnd() || scanner_.AtPunctuation()) {
      return Unexpected(closing == Closing::kEnd ? "a key" : "a key or '}'");
    }
    JsonMember& member = node->members.emplace_back();
    member.position = positions_.At(begin);
    if (!scanner_.AtQuote()) {
      scanner_.ReadName(&member.name);
    } else if (!scanner_.ReadQuoted(&member.name)) {
      return ScannerProblem();
    } else if (!SkipBlanks()) {
      return false;
    }
    if (!names->insert(member.name).second) {
      problems_->push_back(
          {"the key \"" + member.name + "\" is given twice in one object", member.position});
    }
    const bool is_lone = closing == Closing::kEnd && node->members.size() == 1 && scanner_.AtEnd();
    if (is_lone) return Problem(NameLoneValue(begin), begin);
    if (!scanner_.Take(':')) return Unexpected("':'");
    return SkipBlanks() && ReadValue(&member.node);
  }

  bool TakeClosing(Closing closing) {
    if (closing == Closing::kEnd) return scanner_.AtEnd();
    return scanner_.Take(closing == Closing::kBrace ? '}' : ']');
  }

  static std::string ExpectedBeforeEnd(Closing closing, bool has_comma) {
    const bool in_object = closing == Closing::kBrace;
    if (has_comma) return in_object ? "a key or '}'" : "a value or ']'";
    return in_object ? "',' or '}'" : "',' or ']'";
  }

  std::string NameLoneValue(std::size_t begin) const {
    return "expected an object, { ... }, found only " + Describe(text_, begin);
  }

  bool Unexpected(const std::string& expected) {
    const std::size_t offset = scanner_.offset();
    std::string message = "expected " + expected + ", found ";
    message += Describe(text_, offset);
    return Problem(message + SwallowedText(offset), offset);
  }

  bool ScannerProblem() { return Problem(scanner_.error().message, scanner_.error().offset); }

  bool Problem(std::string message, std::size_t offset) {
    problems_->push_back({std::move(message), positions_.At(offset)});
    return false;
  }

  // A string without quotes may have consumed a closing bracket on its line.
  std::string SwallowedText(std::size_t offset) {
    if (bare_text_ == std::string_view::npos) return "";
    const std::string_view line =
        text_.substr(bare_text_, text_.find('\n', bare_text_) - bare_text_);
    if (line.find_first_of("{}[],:") == std::string_view::npos) return "";
    const JsonPosition text_position = PositionCounter(text_.substr(0, offset)).At(bare_text_);
    return "; the text without quotes at " + std::to_string(text_position.line) + ":" +
           std::to_string(text_position.column) + " takes the rest of its line" +
           HintAtPython(line);
  }

  // Python's names for these three values are bare strings in Hjson.
  static std::string HintAtPython(std::string_view line) {
    constexpr std::pair<std::string_view, const char*> kValues[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (const auto& [python, json] : kValues) {
      if (line.starts_with(python))
        return ": write " + std::string(json) + " for " + std::string(python);
    }
    return "";
  }

  std::string_view text_;
  HjsonScanner scanner_;
  PositionCounter positions_;
  int depth_ = 0;
  std::size_t bare_text_ = std::string_view::npos;  // start of the last bare string
  std::vector<JsonProblem>* problems_ = nullptr;
};

}  // namespace

JsonReading ReadPositionedJson(std::string_view text) {
  JsonReading reading;
  reading.complete = HjsonReader(text).Read(&reading);
  return reading;
}

nlohmann::ordered_json FullValue(const JsonNode& node) {
  nlohmann::ordered_json value = node.scalar;
  for (const JsonMember& member : node.members) value[member.name] = FullValue(member.node);
  for (const JsonNode& element : node.elements) value.push_back(FullValue(element));
  return value;
}

}  // namespace ds
