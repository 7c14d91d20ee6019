#pragma once

// ParseNumber reads a text that is one number, and nothing else, as std::from_chars does: no space,
// no plus sign, no locale.
//
// Threads: any.

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace ds {

// Returns nothing when `text` is not such a number, or the type does not hold it (for an unsigned
// one:
// "-1").
template <std::integral Number>
std::optional<Number> ParseNumber(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Reads numbers as printf writes them: "2", "0.5", "1e-3", also "inf" and "nan".
template <std::floating_point Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace ds
