#include "runtime/base/printable.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "runtime/base/utf8.h"

namespace ds {
namespace {

void AppendEscape(const char* format, unsigned value, std::string* out) {
  std::array<char, 16> escape{};
  std::snprintf(escape.data(), escape.size(), format, value);
  *out += escape.data();
}

bool IsControl(char32_t c) {
  return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);
}

// Returns true for bidirectional marks, embeddings, overrides and isolates, and for line
// separators.
bool TurnsDirection(char32_t c) {
  return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    std::string_view valid = text.substr(0, ValidUtf8Prefix(text));
    text.remove_prefix(valid.size());
    while (!valid.empty()) {
      const Utf8Character character = FirstUtf8Character(valid);
      if (IsControl(character.code_point)) {
        AppendEscape("\\x%02x", static_cast<unsigned>(character.code_point), &shown);
      } else if (TurnsDirection(character.code_point)) {
        AppendEscape("\\u%04x", static_cast<unsigned>(character.code_point), &shown);
      } else {
        shown += valid.substr(0, character.length);
      }
      valid.remove_prefix(character.length);
    }
    if (text.empty()) break;
    AppendEscape("\\x%02x", static_cast<std::uint8_t>(text.front()), &shown);
    text.remove_prefix(1);
  }
  return shown;
}

}  // namespace ds
