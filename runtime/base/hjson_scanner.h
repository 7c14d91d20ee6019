#pragma once

// HjsonScanner reads Hjson text (hjson.github.io) token by token: strings, names, numbers, and the
// blanks and comments between them. It knows no grammar; positioned_json.h parses the tokens.
//
// Values equal those of the Python package hjson 3.1.0, which DeepSpeed uses (goldens). Two things
// are refused: half a surrogate pair, which UTF-8 cannot represent, and numbers outside the range
// of double.
//
// A Read function or SkipBlanks advances and returns true, or it returns false and error() holds
// the reason. The scanner keeps a view of the text, which must be UTF-8 and must outlive it.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ds {

class HjsonScanner {
 public:
  struct Error {
    std::string message;
    std::size_t offset = 0;
  };

  // Starts after a byte-order mark, if any.
  explicit HjsonScanner(std::string_view text);

  std::size_t offset() const { return at_; }
  const Error& error() const { return error_; }

  bool AtEnd() const { return at_ == text_.size(); }
  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool AtQuote() const { return At('"') || At('\''); }
  // Returns true at a character that no token begins with: { } [ ] , :
  bool AtPunctuation() const;
  // Advances past `c` and returns true if it is the next character.
  bool Take(char c);

  // Skips blanks and comments: # and // to the end of the line, /* */.
  bool SkipBlanks();
  // Reads "..." or '...' with JSON's escapes (and \'). Requires AtQuote().
  bool ReadQuoted(std::string* out);
  // Reads '''...''' over several lines, and removes the indentation of the opening quotes from each
  // line. Reads other strings like ReadQuoted.
  bool ReadString(std::string* out);
  // Reads a name without quotes, up to its ':', and skips the blanks before that. Requires that the
  // next character exists and is not punctuation.
  void ReadName(std::string* out);
  // Reads a number, true, false or null. If none of these is the complete value, reads the text up
  // to the end of the line as a string. Requires that the next character exists and is not
  // punctuation.
  bool ReadBareValue(nlohmann::ordered_json* out);

 private:
  bool Fail(std::string message, std::size_t offset);
  bool StartsWith(std::string_view prefix) const { return text_.substr(at_).starts_with(prefix); }
  void SkipToLineEnd();
  void SkipIndentation(std::size_t most);
  std::size_t ColumnOf(std::size_t offset) const;
  bool ReadEscape(std::size_t string_begin, std::string* out);
  bool ReadHexDigits(char32_t* out);
  bool ReadMultiline(std::string* out);
  // Returns the offset after the literal that ends at `word_end` and the blanks that follow it.
  std::size_t EndOfLiteral(std::size_t word_end) const;
  bool ValueEndsAt(std::size_t offset) const;

  std::string_view text_;
  std::size_t at_ = 0;
  Error error_;
};

}  // namespace ds
