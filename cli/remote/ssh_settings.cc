#include "cli/remote/ssh_settings.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/remote/ssh_patterns.h"

namespace ds::cli {
namespace {

// dsrun itself reads the keywords about identities, agents and host keys.
const std::set<std::string, std::less<>>& LibsshKeywords() {
  static const std::set<std::string, std::less<>> keywords = {"bindaddress",
                                                              "ciphers",
                                                              "compression",
                                                              "hostkeyalgorithms",
                                                              "hostname",
                                                              "kexalgorithms",
                                                              "macs",
                                                              "port",
                                                              "proxycommand",
                                                              "proxyjump",
                                                              "pubkeyacceptedalgorithms",
                                                              "pubkeyacceptedkeytypes",
                                                              "rekeylimit",
                                                              "requiredrsasize",
                                                              "user"};
  return keywords;
}

}  // namespace

SshSettings SshSettings::Parse(const std::string& printed) {
  SshSettings settings;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t blank = line.find(' ');
    if (blank != std::string::npos) settings.Add(line.substr(0, blank), line.substr(blank + 1));
  }
  return settings;
}

void SshSettings::Add(std::string_view keyword, std::string_view value) {
  values_.emplace_back(Lowered(keyword), value);
}

std::string SshSettings::First(std::string_view keyword) const {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const auto& each) { return each.first == keyword; });
  return found == values_.end() ? "" : found->second;
}

std::vector<std::string> SshSettings::All(std::string_view keyword) const {
  std::vector<std::string> all;
  for (const auto& [each, value] : values_) {
    if (each == keyword) all.push_back(value);
  }
  return all;
}

std::string SshSettings::FirstWord(std::string_view keyword) const {
  const std::vector<std::string> words = SplitConfigWords(First(keyword));
  return words.empty() ? "" : words.front();
}

std::string SshSettings::TextForLibssh() const {
  std::string text;
  for (const auto& [keyword, value] : values_) {
    // `ssh -G` prints "0 0" for the default, which libssh does not accept.
    if (!LibsshKeywords().contains(keyword) || (keyword == "rekeylimit" && value == "0 0"))
      continue;
    text += keyword + " " + value + "\n";
  }
  return text;
}

std::vector<std::string> SplitConfigWords(std::string_view line, std::string_view blanks) {
  std::vector<std::string> words;
  for (std::size_t at = 0;;) {
    at = line.find_first_not_of(blanks, at);
    if (at == line.npos || line[at] == '#') return words;
    std::string word;
    bool quoted = false;
    for (; at < line.size() && (quoted || blanks.find(line[at]) == blanks.npos); ++at) {
      if (line[at] == '"') {
        quoted = !quoted;
      } else {
        word += line[at];
      }
    }
    words.push_back(std::move(word));
  }
}

}  // namespace ds::cli
