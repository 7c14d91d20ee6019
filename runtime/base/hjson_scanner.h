#pragma once

// HjsonScanner reads the words of Hjson text (hjson.github.io) one after the other: strings, names,
// numbers, and what is between them. It knows no grammar; positioned_json.h puts the words
// together.
//
// Equal to the Python package hjson 3.1.0, which DeepSpeed reads its config with (goldens), but for
// what UTF-8 cannot hold (half a surrogate pair) and numbers beyond double, which are refused.
//
// A reader moves behind what it read and returns true; or it returns false, and error() says why.
// Holds a view of the text, which must be UTF-8.

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

  // Begins behind a byte-order mark.
  explicit HjsonScanner(std::string_view text);

  std::size_t offset() const { return at_; }
  const Error& error() const { return error_; }

  bool AtEnd() const { return at_ == text_.size(); }
  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool AtQuote() const { return At('"') || At('\''); }
  // The punctuation that no word begins with: { } [ ] , :
  bool AtPunctuation() const;
  // Moves behind `c` if it is there.
  bool Take(char c);

  // Blanks, and comments: # and // to the end of the line, /* */.
  bool SkipBlanks();
  // "..." or '...' with JSON's escapes (and \'). Requires AtQuote().
  bool ReadQuoted(std::string* out);
  // '''...''' over several lines, without the indentation of its first one, or what ReadQuoted
  // reads.
  bool ReadString(std::string* out);
  // A name without quotes, up to its ':' and over the blanks before that. Requires that the text
  // goes on, and not with punctuation.
  void ReadName(std::string* out);
  // A number, true, false, null or, where none of them stands alone, the text up to the end of the
  // line. Requires that the text goes on, and not with punctuation.
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
  // Finds the end of a number or constant that begins here, with the blanks behind it.
  std::size_t EndOfLiteral(std::size_t word_end) const;
  bool ValueEndsAt(std::size_t offset) const;

  std::string_view text_;
  std::size_t at_ = 0;
  Error error_;
};

}  // namespace ds
