#include "runtime/base/positioned_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <set>
#include <utility>

namespace ds {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Offsets to lines and columns. Asked in rising order, it reads the text once.
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

// The end of the string that opens at `begin`: one past its closing quote.
std::size_t EndOfString(std::string_view text, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != '"' && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

// The end of the comment that opens at `begin`, or `begin` when none does.
std::size_t EndOfComment(std::string_view text, std::size_t begin) {
  const std::string_view rest = text.substr(begin);
  std::size_t end = 0;
  if (rest.starts_with('#') || rest.starts_with("//")) {
    end = rest.find('\n');
  } else if (rest.starts_with("/*")) {
    end = rest.find("*/", 2);
    if (end == std::string_view::npos) return begin;  // the parser reports the '/'
    end += 2;
  }
  return end == std::string_view::npos ? text.size() : begin + end;
}

// The text with blanks for comments and the byte-order mark; every offset keeps its meaning.
std::string BlankOutComments(std::string_view text) {
  std::string blanked(text);
  const auto blank = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (blanked[i] != '\n') blanked[i] = ' ';
    }
  };
  std::size_t i = 0;
  if (text.starts_with(kByteOrderMark)) blank(0, i = kByteOrderMark.size());
  while (i < text.size()) {
    if (text[i] == '"') {
      i = EndOfString(text, i);
    } else if (const std::size_t end = EndOfComment(text, i); end > i) {
      blank(i, end);
      i = end;
    } else {
      ++i;
    }
  }
  return blanked;
}

// Tells the SAX handler how far the parser has read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** furthest_;
};

// Builds the tree. nlohmann's parser reports each token right after reading it, so a token begins
// where the previous one ended, after blanks and at most one separator.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view original, std::string_view blanked)
      : original_(original), text_(blanked), furthest_(blanked.data()), positions_(original) {}

  bool Parse(JsonReading* out) {
    out_ = out;
    const char* end = text_.data() + text_.size();
    return Json::sax_parse(CountingIterator(text_.data(), &furthest_),
                           CountingIterator(end, &furthest_), this);
  }

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool value) override { return Scalar(value); }
  bool number_integer(Json::number_integer_t value) override { return Number(value); }
  bool number_unsigned(Json::number_unsigned_t value) override { return Number(value); }
  bool number_float(Json::number_float_t value, const std::string&) override {
    return Number(value);
  }
  bool string(std::string& value) override { return Scalar(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return Open(Json::object(), Expecting::kNameOrEnd); }
  bool start_array(std::size_t) override { return Open(Json::array(), Expecting::kElementOrEnd); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    const JsonPosition position = positions_.At(TokenStart());
    if (!open_.back().names.insert(name).second) {
      out_->problems.push_back({"the key \"" + name + "\" is given twice in one object", position});
    }
    open_.back().node->members.push_back({name, position, {}});
    Advance(Expecting::kValue);
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    const bool overflow = error.id == kNumberOverflow;
    const std::size_t start = TokenStart();
    const std::string found = Describe(start);
    out_->problems.push_back({overflow ? found + " is too large for a number"
                                       : "expected " + Expected() + ", found " + found,
                              positions_.At(start)});
    return false;
  }

 private:
  struct OpenNode {
    JsonNode* node;               // stays where it is: its parent grows only after it is closed
    std::set<std::string> names;  // of an object's members
  };
  enum class Expecting { kValue, kNameOrEnd, kElementOrEnd, kSeparatorOrEnd };

  std::size_t SkipBlanks(std::size_t offset) const {
    while (offset < text_.size() && IsBlank(text_[offset])) ++offset;
    return offset;
  }

  bool SeparatorAt(std::size_t offset) const {
    if (offset >= text_.size() || open_.empty()) return false;
    if (expecting_ == Expecting::kValue) return text_[offset] == ':';
    return expecting_ == Expecting::kSeparatorOrEnd && text_[offset] == ',';
  }

  // Where the token just read begins.
  std::size_t TokenStart() const {
    const std::size_t start = SkipBlanks(token_end_);
    return SeparatorAt(start) ? SkipBlanks(start + 1) : start;
  }

  void Advance(Expecting expecting) {
    token_end_ = static_cast<std::size_t>(furthest_ - text_.data());
    expecting_ = expecting;
  }

  // The node that the next value belongs in.
  JsonNode* Slot() {
    if (open_.empty()) return &out_->root;
    JsonNode* parent = open_.back().node;
    if (parent->scalar.is_object()) return &parent->members.back().node;
    return &parent->elements.emplace_back();
  }

  template <typename Value>
  bool Scalar(Value&& value) {
    JsonNode* node = Slot();
    node->position = positions_.At(TokenStart());
    node->scalar = std::forward<Value>(value);
    Advance(Expecting::kSeparatorOrEnd);
    return true;
  }

  template <typename Value>
  bool Number(Value value) {
    const std::size_t start = TokenStart();
    Scalar(value);
    // The parser had to read one character too many to see where the number ends.
    token_end_ = std::min(text_.find_first_not_of("+-.0123456789eE", start), text_.size());
    return true;
  }

  bool Open(Json empty, Expecting expecting) {
    const std::size_t start = TokenStart();
    if (open_.size() == kMaxJsonDepth) {
      out_->problems.push_back({"nested too deep", positions_.At(start)});
      return false;
    }
    JsonNode* node = Slot();
    node->position = positions_.At(start);
    node->scalar = std::move(empty);
    open_.push_back({node, {}});
    Advance(expecting);
    return true;
  }

  bool Close() {
    open_.pop_back();
    Advance(Expecting::kSeparatorOrEnd);
    return true;
  }

  // What the grammar allows where the unexpected token stands.
  std::string Expected() const {
    if (open_.empty()) return expecting_ == Expecting::kValue ? "a value" : "the end of the file";
    const bool in_object = open_.back().node->scalar.is_object();
    const bool after_separator = SeparatorAt(SkipBlanks(token_end_));
    switch (expecting_) {
      case Expecting::kNameOrEnd:
        return "a key in double quotes or '}'";
      case Expecting::kElementOrEnd:
        return "a value or ']'";
      case Expecting::kValue:
        return after_separator ? "a value" : "':'";
      case Expecting::kSeparatorOrEnd:
        break;
    }
    if (after_separator) return in_object ? "a key in double quotes" : "a value";
    return in_object ? "',' or '}'" : "',' or ']'";
  }

  // The token at `start` as a message shows it: short and printable.
  std::string Describe(std::size_t start) const {
    if (start >= text_.size()) return "the end of the file";
    if (text_[start] == '"') return "a string that has no end on its line or is not valid";
    constexpr std::size_t kShown = 20;
    constexpr std::string_view kPunctuation = ",:{}[]";
    const bool is_punctuation = kPunctuation.find(text_[start]) != std::string_view::npos;
    const std::size_t end =
        is_punctuation ? start + 1 : text_.find_first_of(" \t\r\n,:{}[]\"", start + 1);
    std::string shown = "'";
    for (const char c : original_.substr(start, std::min(end - start, kShown))) {
      const bool printable = c >= ' ' && c <= '~';
      char escaped[8] = {c};
      if (!printable) std::snprintf(escaped, sizeof escaped, "\\x%02x", c & 0xFF);
      shown += escaped;
    }
    return shown + "'";
  }

  std::string_view original_;
  std::string_view text_;
  const char* furthest_;
  PositionCounter positions_;
  std::size_t token_end_ = 0;
  Expecting expecting_ = Expecting::kValue;
  std::vector<OpenNode> open_;  // the objects and lists around the next token
  JsonReading* out_ = nullptr;
};

}  // namespace

JsonReading ReadPositionedJson(std::string_view text) {
  const std::string blanked = BlankOutComments(text);
  JsonReading reading;
  reading.complete = TreeBuilder(text, blanked).Parse(&reading);
  return reading;
}

nlohmann::ordered_json WholeValue(const JsonNode& node) {
  nlohmann::ordered_json value = node.scalar;
  for (const JsonMember& member : node.members) value[member.name] = WholeValue(member.node);
  for (const JsonNode& element : node.elements) value.push_back(WholeValue(element));
  return value;
}

}  // namespace ds
