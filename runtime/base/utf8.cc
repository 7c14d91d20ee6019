#include "runtime/base/utf8.h"

#include <cstdint>

namespace ds {
namespace {

// Lead describes the first byte of a character: the number of bytes that follow, and the bounds of
// the first of these (the others are 80 to BF). Empty bounds mean that the byte cannot start a
// character.
struct Lead {
  std::size_t following;
  std::uint8_t least, most;
};

Lead LeadOf(std::uint8_t byte) {
  if (byte < 0x80) return {0, 0x80, 0xBF};
  if (byte < 0xC2 || byte > 0xF4) return {1, 1, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte < 0xF0) {
    const std::uint8_t least = byte == 0xE0 ? 0xA0 : 0x80;
    const std::uint8_t most = byte == 0xED ? 0x9F : 0xBF;
    return {2, least, most};
  }
  const std::uint8_t least = byte == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t most = byte == 0xF4 ? 0x8F : 0xBF;
  return {3, least, most};
}

}  // namespace

std::size_t ValidUtf8Prefix(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto within = [&](std::size_t i, std::uint8_t least, std::uint8_t most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  std::size_t i = 0;
  while (i < text.size()) {
    const Lead lead = LeadOf(byte(i));
    if (lead.following > 0 && !within(i + 1, lead.least, lead.most)) return i;
    for (std::size_t k = 2; k <= lead.following; ++k) {
      if (!within(i + k, 0x80, 0xBF)) return i;
    }
    i += 1 + lead.following;
  }
  return i;
}

Utf8Character FirstUtf8Character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::size_t length = 1 + LeadOf(byte(0)).following;
  if (length == 1) return {byte(0), 1};
  char32_t code_point = byte(0) & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code_point = (code_point << 6) | (byte(i) & 0x3FU);
  return {code_point, length};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto tail = [&](int shift) {
    *out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    *out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    *out += static_cast<char>(0xC0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    *out += static_cast<char>(0xE0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    *out += static_cast<char>(0xF0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace ds
