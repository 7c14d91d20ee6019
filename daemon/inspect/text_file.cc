#include "daemon/inspect/text_file.h"

#include <sstream>

#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"

namespace ds::daemon {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

std::string ReadText(const std::filesystem::path& path) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 20;  // cpuinfo of a thousand cores
  const StatusOr<std::string> text = ReadFile(path, kMaxBytes);
  return text.ok() ? std::string(Trim(*text)) : "";
}

std::vector<std::string> ReadLines(const std::filesystem::path& path) {
  std::istringstream text(ReadText(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string FindValue(const std::vector<std::string>& lines, std::string_view key, char separator) {
  for (const std::string& line : lines) {
    const std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const std::string_view text(line);
    if (Trim(text.substr(0, at)) == key) return std::string(Trim(text.substr(at + 1)));
  }
  return "";
}

std::optional<std::uint64_t> ParseLeadingNumber(std::string_view text) {
  return ParseNumber<std::uint64_t>(text.substr(0, text.find(' ')));
}

std::vector<std::string> SplitAtBlanks(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace ds::daemon
