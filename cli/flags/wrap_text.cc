#include "cli/flags/wrap_text.h"

#include <algorithm>

namespace ds::cli {
namespace {

std::string WrapLine(std::string_view line, std::size_t columns, std::size_t indent) {
  const std::string margin(indent, ' ');
  std::string wrapped;
  for (std::size_t width = columns; line.size() > width;
       width = columns - std::min(columns, indent)) {
    const std::size_t word = std::min(line.find_first_not_of(' '), line.size());
    std::size_t end = line.rfind(' ', width);
    if (end == std::string_view::npos || end <= word) end = line.find(' ', word);
    if (end == std::string_view::npos) break;
    wrapped.append(line.substr(0, end)).append("\n").append(margin);
    line.remove_prefix(end + 1);
  }
  return wrapped.append(line);
}

}  // namespace

std::string WrapText(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string wrapped;
  while (true) {
    const std::size_t end = text.find('\n');
    wrapped += WrapLine(text.substr(0, end), columns, indent);
    if (end == std::string_view::npos) return wrapped;
    wrapped += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace ds::cli
