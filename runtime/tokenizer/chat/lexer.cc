#include "runtime/tokenizer/chat/expression_parser.h"

#include <algorithm>

#include "runtime/base/parse_number.h"
#include "runtime/base/utf8.h"

namespace ds::tokenizer {
namespace {

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           "<",  ">",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  StatusOr<std::vector<Lexeme>> Run() {
    while (at_ < source_.size()) DS_RETURN_IF_ERROR(Data());
    Push(LexemeKind::kEnd);
    return std::move(lexemes_);
  }

 private:
  Status Error(const std::string& what) const {
    return InvalidArgumentError("line " + std::to_string(line_) + ": " + what);
  }
  bool Follows(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  char Peek(std::size_t ahead) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void Advance(std::size_t count) {
    const std::size_t end = std::min(at_ + count, source_.size());
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  void Push(LexemeKind kind, std::string text = "", Value constant = {}) {
    lexemes_.push_back({kind, std::move(text), std::move(constant), line_});
  }

  // Reads the text up to the next tag, and the tag.
  Status Data() {
    std::size_t open = at_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        open = source_.size();
        break;
      }
      const char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    std::string_view data = source_.substr(at_, open - at_);
    const bool is_tag = open < source_.size();
    const char kind = is_tag ? source_[open + 1] : '\0';
    const char sign = is_tag && open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (is_tag && sign == '-') {
      const std::size_t last = data.find_last_not_of(" \t\r\n\f\v");
      data = data.substr(0, last == std::string_view::npos ? 0 : last + 1);
    } else if (is_tag && kind != '{' && sign != '+') {
      data = WithoutIndent(data);
    }
    if (!data.empty()) Push(LexemeKind::kData, std::string(data));
    Advance(open - at_);
    if (!is_tag) return OkStatus();
    Advance(sign == '-' || (sign == '+' && kind != '{') ? 3 : 2);
    if (kind == '#') return Comment();
    if (kind == '%') return StatementList();
    Push(LexemeKind::kVariableBegin);
    return Expression("}}", LexemeKind::kVariableEnd);
  }

  // Implements lstrip_blocks: removes blanks between the beginning of the line and a tag.
  std::string_view WithoutIndent(std::string_view data) const {
    const std::size_t last = data.find_last_not_of(" \t\f\v");
    if (last == std::string_view::npos) {
      const bool at_line_start = at_ == 0 || source_[at_ - 1] == '\n';
      return at_line_start ? data.substr(0, 0) : data;
    }
    return data[last] == '\n' ? data.substr(0, last + 1) : data;
  }

  void SkipBlanks() {
    const std::size_t next = source_.find_first_not_of(" \t\r\n\f\v", at_);
    Advance((next == std::string_view::npos ? source_.size() : next) - at_);
  }

  // Handles the text after a tag: trim_blocks removes one newline.
  void AfterTag(char sign, bool trims) {
    if (sign == '-') {
      SkipBlanks();
    } else if (trims && sign != '+' && Peek(0) == '\n') {
      Advance(1);
    }
  }

  Status Comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) return Error("a comment has no end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    AfterTag(sign, true);
    return OkStatus();
  }

  Status StatementList() {
    SkipBlanks();
    if (Follows("raw") && !IsNameStart(Peek(3)) && !IsDigit(Peek(3))) return Raw();
    Push(LexemeKind::kBlockBegin);
    return Expression("%}", LexemeKind::kBlockEnd);
  }

  Status Raw() {
    const std::size_t end_of_tag = source_.find("%}", at_);
    if (end_of_tag == std::string_view::npos) return Error("a raw block has no end");
    const char sign = source_[end_of_tag - 1];
    Advance(end_of_tag + 2 - at_);
    AfterTag(sign, true);
    for (std::size_t open = source_.find("{%", at_); open != std::string_view::npos;
         open = source_.find("{%", open + 2)) {
      std::string_view inside = source_.substr(open + 2);
      const bool strips = inside.starts_with('-');
      if (strips) inside.remove_prefix(1);
      const std::size_t first = inside.find_first_not_of(" \t\n");
      if (first == std::string_view::npos || !inside.substr(first).starts_with("endraw")) continue;
      std::string_view data = source_.substr(at_, open - at_);
      if (strips) data = data.substr(0, data.find_last_not_of(" \t\r\n") + 1);
      if (!strips) data = WithoutIndent(data);
      if (!data.empty()) Push(LexemeKind::kData, std::string(data));
      const std::size_t close = source_.find("%}", open);
      if (close == std::string_view::npos) break;
      const char close_sign = source_[close - 1];
      Advance(close + 2 - at_);
      AfterTag(close_sign, true);
      return OkStatus();
    }
    return Error("a raw block has no end");
  }

  // Reads the lexemes of an expression up to the end of the tag.
  Status Expression(std::string_view end, LexemeKind end_kind) {
    std::string open;  // brackets still open
    while (true) {
      SkipBlanks();
      if (at_ >= source_.size()) return Error("a tag has no end: '" + std::string(end) + "'");
      if (open.empty()) {
        const bool signed_end = (Peek(0) == '-' || (Peek(0) == '+' && end == "%}")) &&
                                source_.substr(at_ + 1).starts_with(end);
        if (signed_end || Follows(end)) {
          const char sign = signed_end ? Peek(0) : '\0';
          Push(end_kind);
          Advance(end.size() + (signed_end ? 1 : 0));
          AfterTag(sign, end == "%}");
          return OkStatus();
        }
      }
      DS_RETURN_IF_ERROR(Word(&open));
    }
  }

  Status Word(std::string* open) {
    const char c = Peek(0);
    if (IsNameStart(c)) {
      std::size_t size = 1;
      while (IsNameStart(Peek(size)) || IsDigit(Peek(size))) ++size;
      Push(LexemeKind::kName, std::string(source_.substr(at_, size)));
      Advance(size);
      return OkStatus();
    }
    if (IsDigit(c)) return Number();
    if (c == '"' || c == '\'') return Text(c);
    for (const std::string_view each : kOperators) {
      if (!Follows(each)) continue;
      if (c == '(' || c == '[' || c == '{') *open += c;
      if ((c == ')' || c == ']' || c == '}') && !open->empty()) open->pop_back();
      Push(LexemeKind::kOperator, std::string(each));
      Advance(each.size());
      return OkStatus();
    }
    return Error("unexpected character '" + std::string(1, c) + "'");
  }

  Status Number() {
    std::size_t size = 0;
    bool real = false;
    while (IsDigit(Peek(size)) || Peek(size) == '_') ++size;
    if (Peek(size) == '.' && IsDigit(Peek(size + 1))) {
      real = true;
      ++size;
      while (IsDigit(Peek(size)) || Peek(size) == '_') ++size;
    }
    const bool has_sign = Peek(size + 1) == '+' || Peek(size + 1) == '-';
    if ((Peek(size) == 'e' || Peek(size) == 'E') && IsDigit(Peek(size + (has_sign ? 2 : 1)))) {
      real = true;
      size += has_sign ? 2 : 1;
      while (IsDigit(Peek(size))) ++size;
    }
    std::string digits(source_.substr(at_, size));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    const auto integer = ParseNumber<std::int64_t>(digits);
    const auto fraction = ParseNumber<double>(digits);
    if (real ? !fraction : !integer) return Error("the number " + digits + " is too large");
    Push(LexemeKind::kConstant, "", real ? Value(*fraction) : Value(*integer));
    Advance(size);
    return OkStatus();
  }

  Status Text(char quote) {
    std::string text;
    std::size_t i = 1;
    for (; Peek(i) != quote; ++i) {
      if (at_ + i >= source_.size()) return Error("a text has no end");
      if (Peek(i) != '\\') {
        text += Peek(i);
        continue;
      }
      ++i;
      DS_RETURN_IF_ERROR(EscapedCharacter(&i, &text));
    }
    Push(LexemeKind::kConstant, "", Value(std::move(text)));
    Advance(i + 1);
    return OkStatus();
  }

  Status EscapedCharacter(std::size_t* i, std::string* text) {
    const char c = Peek(*i);
    constexpr std::pair<char, char> kSimple[] = {
        {'n', '\n'}, {'r', '\r'}, {'t', '\t'},  {'b', '\b'},  {'f', '\f'}, {'v', '\v'},
        {'a', '\a'}, {'0', '\0'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'}};
    for (const auto& [letter, meant] : kSimple) {
      if (c == letter) {
        *text += meant;
        return OkStatus();
      }
    }
    if (c == '\n') return OkStatus();
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      *text += '\\';
      *text += c;
      return OkStatus();
    }
    char32_t code_point = 0;
    for (int k = 0; k < digits; ++k) {
      const char digit = Peek(++*i);
      const bool hex =
          IsDigit(digit) || (digit >= 'a' && digit <= 'f') || (digit >= 'A' && digit <= 'F');
      if (!hex) return Error("an escaped character has too few digits");
      code_point = 16 * code_point +
                   static_cast<char32_t>(IsDigit(digit) ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
      return Error("an escaped character is none of Unicode's");
    }
    AppendUtf8(code_point, text);
    return OkStatus();
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Lexeme> lexemes_;
};

}  // namespace

StatusOr<std::vector<Lexeme>> ReadLexemes(std::string_view source) {
  // Jinja removes the newline at the end of a template.
  if (source.ends_with('\n')) source.remove_suffix(1);
  if (source.ends_with('\r')) source.remove_suffix(1);
  return Lexer(source).Run();
}

}  // namespace ds::tokenizer
