#include "runtime/base/json_text.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/parse_number.h"

namespace ds {
namespace {

constexpr std::size_t kEscapeBytes = 6;  // \ud83d

// Returns the code unit of the escape at `at`, or nullopt when no escape is there.
std::optional<std::uint32_t> UnitAt(std::string_view json, std::size_t at) {
  if (at + kEscapeBytes > json.size() || json.substr(at, 2) != "\\u") return std::nullopt;
  return ParseNumber<std::uint32_t>(json.substr(at + 2, kEscapeBytes - 2), 16);
}

bool IsHigh(std::uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLow(std::uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

}  // namespace

std::optional<std::size_t> FindLoneSurrogate(std::string_view json) {
  for (std::size_t at = json.find('\\'); at != std::string_view::npos; at = json.find('\\', at)) {
    const auto unit = UnitAt(json, at);
    if (!unit || (!IsHigh(*unit) && !IsLow(*unit))) {
      at += 2;
      continue;
    }
    const auto next = UnitAt(json, at + kEscapeBytes);
    if (IsLow(*unit) || !next || !IsLow(*next)) return at;
    at += 2 * kEscapeBytes;
  }
  return std::nullopt;
}

}  // namespace ds
