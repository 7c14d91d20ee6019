#include "runtime/base/hjson_scanner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/utf8.h"

namespace ds {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kPunctuation = "{}[],:";
constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::string_view kMultilineQuote = "'''";
constexpr char kNoEnd[] = "a string that has no end on its line";

bool IsOneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns the end of the longest JSON number at `begin`, or `begin`.
std::size_t EndOfNumber(std::string_view text, std::size_t begin) {
  const auto has = [&](std::size_t i, std::string_view set) {
    return i < text.size() && IsOneOf(text[i], set);
  };
  const auto skip_digits = [&](std::size_t i) {
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i;
  };
  const std::size_t mantissa = has(begin, "-") ? begin + 1 : begin;
  std::size_t end = has(mantissa, "0") ? mantissa + 1 : skip_digits(mantissa);
  if (end == mantissa) return begin;
  if (has(end, ".")) {
    const std::size_t fraction_end = skip_digits(end + 1);
    if (fraction_end > end + 1) end = fraction_end;
  }
  if (has(end, "eE")) {
    const std::size_t digits = has(end + 1, "+-") ? end + 2 : end + 1;
    const std::size_t exponent_end = skip_digits(digits);
    if (exponent_end > digits) end = exponent_end;
  }
  return end;
}

std::string_view Stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

}  // namespace

HjsonScanner::HjsonScanner(std::string_view text)
    : text_(text), at_(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {}

bool HjsonScanner::AtPunctuation() const { return !AtEnd() && IsOneOf(text_[at_], kPunctuation); }

bool HjsonScanner::Take(char c) {
  if (!At(c)) return false;
  ++at_;
  return true;
}

bool HjsonScanner::SkipBlanks() {
  while (!AtEnd()) {
    if (IsOneOf(text_[at_], kBlanks)) {
      ++at_;
    } else if (At('#') || StartsWith("//")) {
      SkipToLineEnd();
    } else if (StartsWith("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) return Fail("a comment that has no end", at_);
      at_ = end + 2;
    } else {
      break;
    }
  }
  return true;
}

bool HjsonScanner::ReadQuoted(std::string* out) {
  const std::size_t begin = at_;
  const char quote = text_[at_++];
  while (!AtEnd()) {
    const char c = text_[at_];
    if (c == quote) {
      ++at_;
      return true;
    }
    if (c == '\n' || c == '\r') break;
    if (static_cast<unsigned char>(c) < ' ') {
      return Fail("a control character in a string; write it as an escape, \\t for a tab", at_);
    }
    ++at_;
    if (c != '\\') {
      *out += c;
    } else if (!ReadEscape(begin, out)) {
      return false;
    }
  }
  return Fail(kNoEnd, begin);
}

bool HjsonScanner::ReadString(std::string* out) {
  return StartsWith(kMultilineQuote) ? ReadMultiline(out) : ReadQuoted(out);
}

void HjsonScanner::ReadName(std::string* out) {
  const std::size_t begin = at_;
  while (!AtEnd() && !AtPunctuation() && !IsOneOf(text_[at_], kBlanks)) ++at_;
  *out = text_.substr(begin, at_ - begin);
  while (!AtEnd() && IsOneOf(text_[at_], kBlanks)) ++at_;
}

bool HjsonScanner::ReadBareValue(Json* out) {
  const std::size_t begin = at_;
  const std::size_t number_end = EndOfNumber(text_, begin);
  if (number_end > begin && ValueEndsAt(EndOfLiteral(number_end))) {
    const std::string_view number = text_.substr(begin, number_end - begin);
    *out = Json::parse(number, nullptr, /*allow_exceptions=*/false);
    if (out->is_discarded()) {
      return Fail("'" + std::string(number.substr(0, 20)) + "' is too large for a number", begin);
    }
    at_ = EndOfLiteral(number_end);
    return true;
  }
  constexpr std::pair<std::string_view, const char*> kConstants[] = {
      {"null", "null"}, {"true", "true"}, {"false", "false"}};
  for (const auto& [name, json] : kConstants) {
    const std::size_t end = EndOfLiteral(begin + name.size());
    if (!StartsWith(name) || !ValueEndsAt(end)) continue;
    *out = Json::parse(json);
    at_ = end;
    return true;
  }
  SkipToLineEnd();
  *out = Stripped(text_.substr(begin, at_ - begin));
  return true;
}

bool HjsonScanner::Fail(std::string message, std::size_t offset) {
  error_ = {std::move(message), offset};
  return false;
}

void HjsonScanner::SkipToLineEnd() {
  at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
}

void HjsonScanner::SkipIndentation(std::size_t most) {
  while (most-- > 0 && !AtEnd() && IsOneOf(text_[at_], " \t\r")) ++at_;
}

// Returns the column in characters, from 0.
std::size_t HjsonScanner::ColumnOf(std::size_t offset) const {
  const std::size_t newline = text_.substr(0, offset).rfind('\n');
  const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
  return static_cast<std::size_t>(std::count_if(text_.begin() + static_cast<std::ptrdiff_t>(line),
                                                text_.begin() + static_cast<std::ptrdiff_t>(offset),
                                                [](char c) { return (c & 0xC0) != 0x80; }));
}

// Decodes an escape. The backslash has been read.
bool HjsonScanner::ReadEscape(std::size_t string_begin, std::string* out) {
  if (AtEnd()) return Fail(kNoEnd, string_begin);
  constexpr std::string_view kNames = "\"'\\/bfnrt";
  constexpr std::string_view kMeanings = "\"'\\/\b\f\n\r\t";
  const std::size_t backslash = at_ - 1;
  if (const std::size_t i = kNames.find(text_[at_]); i != std::string_view::npos) {
    *out += kMeanings[i];
    ++at_;
    return true;
  }
  const auto fail = [&] { return Fail("an escape that JSON does not have", backslash); };
  char32_t code_point = 0;
  if (!Take('u') || !ReadHexDigits(&code_point)) return fail();
  const bool is_first_half = code_point >= 0xD800 && code_point < 0xDC00;
  char32_t second = 0;
  if (is_first_half && StartsWith("\\u")) {
    at_ += 2;
    if (!ReadHexDigits(&second)) return fail();
    if (second < 0xDC00 || second > 0xDFFF) return fail();
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (second - 0xDC00);
  }
  if (code_point >= 0xD800 && code_point <= 0xDFFF) {
    return Fail("half a surrogate pair, which is not a character", backslash);
  }
  AppendUtf8(code_point, out);
  return true;
}

bool HjsonScanner::ReadHexDigits(char32_t* out) {
  constexpr std::size_t kDigits = 4;
  if (text_.size() - at_ < kDigits) return false;
  for (std::size_t i = 0; i < kDigits; ++i, ++at_) {
    constexpr std::string_view kValues = "0123456789abcdef0123456789ABCDEF";
    const std::size_t value = kValues.find(text_[at_]);
    if (value == std::string_view::npos) return false;
    *out = *out * 16 + static_cast<char32_t>(value % 16);
  }
  return true;
}

bool HjsonScanner::ReadMultiline(std::string* out) {
  const std::size_t begin = at_;
  // Computed at the first line end, so that no line is counted twice.
  std::optional<std::size_t> indentation;
  const auto begin_line = [&] {
    if (!indentation) indentation = ColumnOf(begin);
    SkipIndentation(*indentation);
  };
  at_ += kMultilineQuote.size();
  SkipIndentation(text_.size());
  if (Take('\n')) begin_line();
  while (!AtEnd()) {
    if (StartsWith(kMultilineQuote)) {
      at_ += kMultilineQuote.size();
      if (out->ends_with('\n')) out->pop_back();
      return true;
    }
    const char c = text_[at_++];
    if (c != '\r') *out += c;
    if (c == '\n') begin_line();
  }
  return Fail("a string in ''' that has no end", begin);
}

std::size_t HjsonScanner::EndOfLiteral(std::size_t word_end) const {
  return std::min(text_.find_first_not_of(" \t", std::min(word_end, text_.size())), text_.size());
}

bool HjsonScanner::ValueEndsAt(std::size_t offset) const {
  if (offset == text_.size() || IsOneOf(text_[offset], "\r\n,}]#")) return true;
  const std::string_view rest = text_.substr(offset);
  return rest.starts_with("//") || rest.starts_with("/*");
}

}  // namespace ds
