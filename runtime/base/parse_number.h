#pragma once

// ParseNumber parses a text that is exactly one number, by the rules of std::from_chars: no space,
// no plus sign, no locale.
//
// Thread-safe.

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace ds {

// Returns nullopt when `text` is not such a number or does not fit the type ("-1" for an unsigned
// type).
template <std::integral Number>
std::optional<Number> ParseNumber(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Parses numbers as printf writes them: "2", "0.5", "1e-3", also "inf" and "nan".
template <std::floating_point Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace ds
