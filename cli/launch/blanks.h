#pragma once

// The characters that hostfiles and env files count as blank, the mark that some editors put at
// their beginning, and how their lines are cut into words and parts.

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

// Cuts the first run of non-blanks off `text`, which starts with a non-blank or is empty.
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
