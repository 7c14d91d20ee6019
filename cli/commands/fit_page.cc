#include "cli/commands/fit_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/wrap_text.h"

namespace ds::cli {
namespace {

using Cells = std::vector<std::string>;

constexpr std::string_view kCode = "    ";  // begins a line of code
constexpr std::string_view kItem = "- ";

std::string Trimmed(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return cell.substr(first, cell.find_last_not_of(' ') + 1 - first);
}

// Returns the cells of "| a | b |". A '|' in a cell is written "\|".
Cells SplitRow(const std::string& row) {
  Cells cells;
  std::string cell;
  for (std::size_t at = 1; at < row.size(); ++at) {
    if (row[at] == '\\' && at + 1 < row.size() && row[at + 1] == '|') {
      cell += row[++at];
    } else if (row[at] == '|') {
      cells.push_back(Trimmed(std::exchange(cell, "")));
    } else {
      cell += row[at];
    }
  }
  return cells;
}

std::string ListRow(const Cells& names, const Cells& row, std::size_t columns) {
  std::size_t name_columns = 0;
  for (const std::string& name : names) name_columns = std::max(name_columns, name.size());
  std::string list = row.front() + "\n";
  for (std::size_t i = 1; i < std::min(names.size(), row.size()); ++i) {
    if (row[i].empty()) continue;
    const std::string name = fmt::format("  {:<{}}  ", names[i], name_columns);
    list += WrapText(name + row[i], columns, name.size()) + "\n";
  }
  return list;
}

// The first two lines of a table are its head and a rule.
std::string FitTable(const std::vector<std::string>& lines, std::size_t columns) {
  const bool fits = std::all_of(lines.begin(), lines.end(),
                                [&](const std::string& line) { return line.size() <= columns; });
  std::string text;
  if (fits || lines.size() < 2) {
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }
  const Cells names = SplitRow(lines[0]);
  for (std::size_t i = 2; i < lines.size(); ++i) {
    text += ListRow(names, SplitRow(lines[i]), columns);
  }
  return text;
}

std::string FitLine(const std::string& line, std::size_t columns) {
  if (line.starts_with(kCode)) return line + "\n";
  return WrapText(line, columns, line.starts_with(kItem) ? kItem.size() : 0) + "\n";
}

}  // namespace

std::string FitPage(const std::string& page, std::size_t columns) {
  std::istringstream lines(page);
  std::string text;
  std::vector<std::string> table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('|')) {
      table.push_back(line);
      continue;
    }
    text += FitTable(std::exchange(table, {}), columns) + FitLine(line, columns);
  }
  return text + FitTable(table, columns);
}

}  // namespace ds::cli
