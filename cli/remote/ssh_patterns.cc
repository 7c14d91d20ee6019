#include "cli/remote/ssh_patterns.h"

#include <algorithm>

namespace ds::cli {

bool MatchesPattern(std::string_view name, std::string_view pattern) {
  while (!pattern.empty() && pattern[0] != '*') {
    if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) {
      return false;
    }
    name.remove_prefix(1);
    pattern.remove_prefix(1);
  }
  if (pattern.empty()) return name.empty();
  while (pattern.starts_with('*')) pattern.remove_prefix(1);
  if (pattern.empty()) return true;
  for (; !name.empty(); name.remove_prefix(1)) {
    if (MatchesPattern(name, pattern)) return true;
  }
  return false;
}

bool MatchesPatterns(std::string_view name, const std::vector<std::string>& patterns) {
  bool found = false;
  for (const std::string& pattern : patterns) {
    const bool negated = pattern.starts_with('!');
    if (!MatchesPattern(name, std::string_view(pattern).substr(negated ? 1 : 0))) continue;
    if (negated) return false;
    found = true;
  }
  return found;
}

std::vector<std::string> SplitCommas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lowered;
}

}  // namespace ds::cli
