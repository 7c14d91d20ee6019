#pragma once

// The characters that hostfiles and env files count as blank, and the mark that some editors put at
// their beginning.

#include <string_view>

namespace ds::cli {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

inline bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

inline std::string_view StripFront(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  return text;
}

inline std::string_view Strip(std::string_view text) {
  text = StripFront(text);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace ds::cli
