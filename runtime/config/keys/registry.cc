#include "runtime/config/keys/registry.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace ds::config {
namespace {

constexpr double kNoMinimum = -std::numeric_limits<double>::infinity();
constexpr double kNoMaximum = std::numeric_limits<double>::infinity();

using NamePair = std::pair<std::string_view, std::string_view>;

// Defines kSettings (order of the file), kByKey (indices into it, sorted by key), kAliases,
// kRetired and kForeign.
#include "runtime/config/keys/settings_table.inc"

std::string Join(std::string_view parent, std::string_view name) {
  return parent.empty() ? std::string(name) : std::string(parent) + "." + std::string(name);
}

// Returns every indexed key that starts with `prefix`, in sorted order.
std::span<const std::uint16_t> KeysStartingWith(std::string_view prefix) {
  const auto* begin =
      std::lower_bound(std::begin(kByKey), std::end(kByKey), prefix,
                       [](std::uint16_t i, std::string_view p) { return kSettings[i].key < p; });
  const auto* end = std::find_if_not(begin, std::end(kByKey), [&](std::uint16_t i) {
    return kSettings[i].key.starts_with(prefix);
  });
  return {begin, end};
}

std::string_view Find(std::span<const NamePair> pairs, std::string_view name) {
  const auto found = std::find_if(pairs.begin(), pairs.end(),
                                  [&](const NamePair& pair) { return pair.first == name; });
  return found == pairs.end() ? "" : found->second;
}

bool IsPlaceholder(std::string_view name) { return name.starts_with('<'); }

// Returns the first name of `path` below `parent`: "stage" of "zero_optimization.stage".
std::string_view NameBelow(std::string_view path, std::string_view parent) {
  if (!parent.empty()) path.remove_prefix(parent.size() + 1);
  const std::string_view name = path.substr(0, path.find('.'));
  return name.ends_with("[]") ? name.substr(0, name.size() - 2) : name;
}

}  // namespace

std::span<const Setting> AllSettings() { return kSettings; }

const Setting* FindSetting(std::string_view path) {
  const auto keys = KeysStartingWith(path);
  return !keys.empty() && kSettings[keys[0]].key == path ? &kSettings[keys[0]] : nullptr;
}

bool HasChildren(std::string_view path) {
  return !KeysStartingWith(std::string(path) + ".").empty();
}

std::string_view AliasTarget(std::string_view path) { return Find(kAliases, path); }

std::string_view FindRetiredHint(std::string_view path) { return Find(kRetired, path); }

// "*.name" matches a name in every section.
std::string_view FindForeignHint(std::string_view path) {
  const std::string_view exact = Find(kForeign, path);
  if (!exact.empty()) return exact;
  return Find(kForeign, "*." + std::string(path.substr(path.rfind('.') + 1)));
}

std::string MemberPath(std::string_view parent, std::string_view name) {
  // A dot or a placeholder in the file's text is part of a name, never a path.
  const bool plain = name.find_first_of(".<[") == std::string_view::npos && !name.empty();
  if (plain) {
    std::string path = Join(parent, name);
    if (const std::string_view target = AliasTarget(path); !target.empty()) {
      return std::string(target);
    }
    if (FindSetting(path) != nullptr || HasChildren(path)) return path;
  }
  const auto placeholders = KeysStartingWith(Join(parent, "<"));
  if (placeholders.empty()) return "";
  return Join(parent, NameBelow(kSettings[placeholders[0]].key, parent));
}

std::vector<std::string> MemberNames(std::string_view parent) {
  const std::string prefix = parent.empty() ? "" : std::string(parent) + ".";
  std::vector<std::string> names;
  const auto add = [&](std::string_view path) {
    const std::string_view name = NameBelow(path, parent);
    if (!IsPlaceholder(name) && (names.empty() || names.back() != name)) names.emplace_back(name);
  };
  for (const std::uint16_t i : KeysStartingWith(prefix)) add(kSettings[i].key);
  for (const auto& [alias, target] : kAliases) {
    if (alias.starts_with(prefix)) add(alias);
  }
  return names;
}

std::vector<std::string> FindPathsEndingIn(std::string_view name) {
  const std::string suffix = "." + std::string(name);
  std::vector<std::string> paths;
  for (const Setting& setting : kSettings) {
    if (setting.key.ends_with(suffix)) paths.emplace_back(setting.key);
  }
  return paths;
}

}  // namespace ds::config
