#pragma once

// Helpers for the lines of hostfiles and env files: blank characters, the byte-order mark that some
// editors write at the start, and splitting into words and parts.

#include <algorithm>
#include <string_view>
#include <vector>

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

// Removes and returns the first run of non-blanks. `text` must start with a non-blank or be empty.
inline std::string_view TakeWord(std::string_view* text) {
  const std::size_t length = std::find_if(text->begin(), text->end(), IsBlank) - text->begin();
  const std::string_view word = text->substr(0, length);
  *text = Strip(text->substr(length));
  return word;
}

inline std::vector<std::string_view> SplitAt(char separator, std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

}  // namespace ds::cli
