#include "cli/plan/stored_exports.h"

#include <algorithm>
#include <string_view>

#include "cli/plan/exports.h"
#include "cli/plan/secrets.h"

namespace ds::cli {
namespace {

std::string NameOf(const std::string& word) { return word.substr(0, word.find('=')); }

// `word` with its end `exported`, a NAME=VALUE, hidden behind the '='.
std::string HideEnd(const std::string& word, const std::string& exported) {
  return word.substr(0, word.size() - exported.size()) + NameOf(exported) + "=" +
         std::string(kRedacted);
}

std::string List(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

std::vector<std::string> NameExports(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) names.push_back(NameOf(word));
  return names;
}

std::vector<std::string> HideExports(std::vector<std::string> command_line,
                                     const std::vector<std::string>& words) {
  std::string_view before;
  for (std::string& word : command_line) {
    const bool behind_flag = before == "-x" || before == "--export";
    for (const std::string& exported : words) {
      if (exported.find('=') == std::string::npos) continue;
      if ((behind_flag && word == exported) || word == "-x" + exported ||
          word == "--export=" + exported) {
        word = HideEnd(word, exported);
        break;
      }
    }
    before = word;
  }
  return command_line;
}

StatusOr<RenewedExports> RenewExports(const std::vector<std::string>& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell) {
  const std::vector<std::string> renewed = NameExports(given);
  RenewedExports exports;
  std::vector<std::string> missing;
  for (const std::string& word : stored) {
    if (std::find(renewed.begin(), renewed.end(), word) != renewed.end()) continue;
    exports.words.push_back(word);
    if (word.find_first_of("=*?[") != std::string::npos) continue;
    (FindVariable(shell, word) == nullptr ? missing : exports.from_shell).push_back(word);
  }
  if (missing.empty()) return exports;
  return InvalidArgumentError("the job was given " + List(missing) +
                              " by -x, and its job.json keeps no values: export " +
                              (missing.size() == 1 ? "it" : "them") +
                              " in this shell, or give -x " + missing.front() + "=... again");
}

}  // namespace ds::cli
