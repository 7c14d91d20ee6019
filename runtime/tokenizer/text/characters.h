#pragma once

// The classes of a character in Unicode's terms: white space, punctuation, a mark. They are those
// that Rust's `char` and the crates of Hugging Face's library have. Pure.

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/utf8.h"

namespace ds::tokenizer {

// The bytes of a character of UTF-8 that begins with `first`. Requires valid UTF-8.
inline std::size_t Utf8Length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// Calls use(code_point) with each character. Requires valid UTF-8.
template <typename Use>
void ForEachCharacter(std::string_view text, Use use) {
  while (!text.empty()) {
    const Utf8Character character = FirstUtf8Character(text);
    use(character.code_point);
    text.remove_prefix(character.length);
  }
}

std::size_t CountCharacters(std::string_view text);
bool IsAscii(std::string_view text);

bool IsWhiteSpace(char32_t character);      // the property White_Space
bool IsNumeric(char32_t character);         // categories Nd, Nl, No
bool IsPunctuation(char32_t character);     // ASCII's and categories P*
bool IsCombiningMark(char32_t character);   // categories M*
bool IsNonspacingMark(char32_t character);  // category Mn
bool IsOther(char32_t character);           // categories Cc, Cf, Co and what is not assigned
bool IsWordCharacter(char32_t character);   // letters, marks, decimal digits, connectors
bool IsChinese(char32_t character);         // the blocks that BERT puts blanks around

// Calls use(code_point) with the characters that are the lower case of this one: one, or more.
template <typename Use>
void ForEachLowerCase(char32_t character, Use use);

char32_t LowerCase(char32_t character);

template <typename Use>
void ForEachLowerCase(char32_t character, Use use) {
  if (character == 0x130) {  // the one character with two: a capital I with a dot
    use(U'i');
    use(char32_t{0x307});
    return;
  }
  use(LowerCase(character));
}

}  // namespace ds::tokenizer
