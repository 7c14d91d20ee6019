#pragma once

// Unicode classes of a character: white space, punctuation, mark. They match Rust's `char` and the
// crates of Hugging Face's library. Pure.

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/utf8.h"

namespace ds::tokenizer {

// Returns the length in bytes of a UTF-8 character that begins with `first`. Requires valid UTF-8.
inline std::size_t Utf8Length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// Calls use(code_point) for each character. Requires valid UTF-8.
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
bool IsPunctuation(char32_t character);     // ASCII punctuation and categories P*
bool IsCombiningMark(char32_t character);   // categories M*
bool IsNonspacingMark(char32_t character);  // category Mn
bool IsOther(char32_t character);           // categories Cc, Cf, Co and unassigned
bool IsWordCharacter(char32_t character);   // letters, marks, decimal digits, connectors
bool IsChinese(char32_t character);         // the blocks that BERT surrounds with blanks

// Calls use(code_point) for the characters of this one's lower case: one, or more.
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
