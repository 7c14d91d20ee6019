#include "cli/launch/stored_exports.h"

#include <algorithm>

#include "cli/launch/exports.h"
#include "cli/launch/secrets.h"

namespace ds::cli {
namespace {

std::string NameOf(const std::string& word) { return word.substr(0, word.find('=')); }

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Joins `names`, each between `before` and `behind`.
std::string List(const std::vector<std::string>& names, const std::string& separator,
                 const std::string& before = "", const std::string& behind = "") {
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? "" : separator) + before + name + behind;
  }
  return list;
}

Status ValuesAreLost(const std::vector<std::string>& names) {
  return InvalidArgumentError("the job was given " + List(names, ", ") +
                              " by -x NAME=VALUE, and "
                              "its job.json keeps no values: give " +
                              List(names, " ", "-x ", "=...") + " again, or " +
                              List(names, " ", "-x ") + " for this shell's");
}

Status NobodyHas(const std::vector<std::string>& names) {
  return InvalidArgumentError("the job takes " + List(names, ", ") +
                              " from the shell by -x, and this one has it not: export it here, or "
                              "give " +
                              List(names, " ", "-x ", "=..."));
}

}  // namespace

StoredExports StoreExports(const std::vector<std::string>& words) {
  StoredExports stored{.words = {}, .had_values = std::vector<std::string>()};
  for (const std::string& word : words) {
    stored.words.push_back(NameOf(word));
    if (stored.words.back().size() < word.size()) stored.had_values->push_back(NameOf(word));
  }
  return stored;
}

StatusOr<RenewedExports> RenewExports(const StoredExports& stored,
                                      const std::vector<std::string>& given,
                                      const Environment& shell) {
  RenewedExports exports;
  std::vector<std::string> lost;
  std::vector<std::string> missing;
  for (const std::string& word : stored.words) {
    const std::string name = NameOf(word);
    const bool anew = std::any_of(given.begin(), given.end(), [&](const std::string& renewed) {
      return NameOf(renewed) == name;
    });
    if (anew) continue;
    const bool had_value = stored.had_values.has_value()
                               ? Contains(*stored.had_values, name)
                               : word.ends_with("=" + std::string(kRedacted));
    if (had_value) {
      lost.push_back(name);
      continue;
    }
    exports.words.push_back(word);
    if (word.find_first_of("=*?[") != std::string::npos) continue;
    (FindVariable(shell, word) == nullptr ? missing : exports.from_shell).push_back(word);
  }
  if (!lost.empty()) return ValuesAreLost(lost);
  if (!missing.empty()) return NobodyHas(missing);
  exports.may_have_had_values = !stored.had_values.has_value() && !exports.from_shell.empty();
  return exports;
}

}  // namespace ds::cli
