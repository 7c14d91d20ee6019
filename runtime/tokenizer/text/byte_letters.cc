#include "runtime/tokenizer/text/byte_letters.h"

#include "runtime/base/utf8.h"

namespace ds::tokenizer {
namespace {

constexpr std::string_view kHexDigits = "0123456789ABCDEF";

bool StandsForItself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct LetterTable {
  std::string letters[256];
  std::array<std::int16_t, 512> bytes;  // by letter; -1: none

  LetterTable() {
    bytes.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t letter = StandsForItself(byte) ? byte : next++;
      AppendUtf8(letter, &letters[byte]);
      bytes[letter] = static_cast<std::int16_t>(byte);
    }
  }
};

const LetterTable& Table() {
  static const LetterTable table;
  return table;
}

}  // namespace

const std::string (&ByteLetters())[256] { return Table().letters; }

std::optional<char> LetterByte(char32_t letter) {
  if (letter >= 512 || Table().bytes[letter] < 0) return std::nullopt;
  return static_cast<char>(Table().bytes[letter]);
}

std::optional<std::string> LettersToBytes(std::string_view letters) {
  std::string bytes;
  while (!letters.empty()) {
    const Utf8Character character = FirstUtf8Character(letters);
    const std::optional<char> byte = LetterByte(character.code_point);
    if (!byte) return std::nullopt;
    bytes += *byte;
    letters.remove_prefix(character.length);
  }
  return bytes;
}

std::string ByteToken(unsigned char byte) {
  return std::string("<0x") + kHexDigits[byte >> 4] + kHexDigits[byte & 15] + ">";
}

std::optional<char> TokenByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char digit : token.substr(3, 2)) {
    const std::size_t value = kHexDigits.find(digit >= 'a' && digit <= 'f' ? digit - 32 : digit);
    if (value == std::string_view::npos) return std::nullopt;
    byte = 16 * byte + static_cast<int>(value);
  }
  return static_cast<char>(byte);
}

}  // namespace ds::tokenizer
