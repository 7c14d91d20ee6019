#pragma once

// UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// The length of the longest beginning of `text` that is UTF-8: its size when all of it is.
std::size_t ValidUtf8Prefix(std::string_view text);

// The first character of a text that begins with one, and the bytes it takes.
struct Utf8Character {
  char32_t code_point;
  std::size_t length;
};
Utf8Character FirstUtf8Character(std::string_view text);

// Requires a code point up to U+10FFFF that is no surrogate.
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace ds
