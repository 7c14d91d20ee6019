#pragma once

// UTF-8 functions (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// Returns the length of the longest valid UTF-8 prefix of `text`, which is its size when all of it
// is valid.
std::size_t ValidUtf8Prefix(std::string_view text);

// The first character of a text and its length in bytes. The text must begin with a valid one.
struct Utf8Character {
  char32_t code_point;
  std::size_t length;
};
Utf8Character FirstUtf8Character(std::string_view text);

// Appends a character. Requires a code point up to U+10FFFF that is not a surrogate.
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace ds
