#include "runtime/config/check/read_values.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/suggest.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// One key of the file: `path` finds it in the registry, `key` is its name in messages.
struct FileKey {
  std::string path;
  std::string key;
};

bool IsComment(std::string_view name, const FileKey& parent) {
  return name.starts_with("_") || name.starts_with("#") || name.starts_with("//") ||
         name == "comment" || (name == "origins" && parent.key.empty());
}

class ValueReader {
 public:
  ValueReader(Values* values, IssueLog* issues, UnknownKeys unknown)
      : values_(*values), issues_(*issues), unknown_(unknown) {}

  Json ReadFile(const JsonNode& root) {
    Json plain = ReadObject(root, {"", ""});
    if (!ignored_.empty()) {
      issues_.Warning("", "unknown keys are ignored: " + ignored_, first_ignored_);
    }
    return plain;
  }

  Json ReadObject(const JsonNode& node, const FileKey& parent) {
    Json plain = Json::object();
    for (const JsonMember& member : node.members) {
      if (IsComment(member.name, parent)) continue;
      const std::optional<FileKey> file_key = FindKey(member, parent);
      if (!file_key) continue;
      if (std::optional<Json> value = ReadMember(member.node, *file_key)) {
        const std::string name =
            file_key->key.substr(parent.key.empty() ? 0 : parent.key.size() + 1);
        if (name == member.name) {
          plain[name] = *std::move(value);  // dots are part of a user-chosen name
        } else {
          Put(name, *std::move(value), &plain);
        }
      }
    }
    return plain;
  }

 private:
  // Sets `name` in `section`. An alias may stand for a key of a nested section: "inner.name".
  static void Put(std::string_view name, Json value, Json* section) {
    for (std::size_t dot; (dot = name.find('.')) != std::string_view::npos;) {
      section = &(*section)[std::string(name.substr(0, dot))];
      name.remove_prefix(dot + 1);
    }
    if (section->contains(name) && value.is_object()) {
      section->at(name).update(value);
    } else {
      (*section)[std::string(name)] = std::move(value);
    }
  }

  // Returns the registry key of the member. Logs an error and returns nothing for an unknown one.
  std::optional<FileKey> FindKey(const JsonMember& member, const FileKey& parent) {
    const std::string& name = member.name;
    const std::string prefix = parent.key.empty() ? "" : parent.key + ".";
    const std::string path = MemberPath(parent.path, name);
    if (path.empty()) {
      RefuseOrIgnore(prefix + name, parent, member);
      return std::nullopt;
    }
    const std::string registered = path.substr(parent.path.empty() ? 0 : parent.path.size() + 1);
    const std::string key = prefix + (registered.starts_with('<') ? name : registered);
    const auto [seen, is_first] = names_seen_.emplace(key, name);
    if (is_first) return FileKey{path, key};
    // A repeated name was reported when the text was parsed; two names of one key are reported
    // here.
    if (seen->second != name) {
      issues_.Error(key, "'" + seen->second + "' and '" + name + "' are two names of " + key,
                    member.position);
    }
    return std::nullopt;
  }

  // Keys that DeepSpeed rejects by name are never ignored.
  void RefuseOrIgnore(const std::string& key, const FileKey& parent, const JsonMember& member) {
    const std::string retired(FindRetiredHint(key));
    if (!retired.empty()) {
      issues_.Error(key, key + " is not accepted: " + retired, member.position);
    } else if (unknown_ == UnknownKeys::kRefused) {
      issues_.Error(key,
                    "unknown key " + key + Remedy(member, key, parent) +
                        " (--ignore_unknown_keys ignores unknown keys)",
                    member.position);
    } else {
      if (ignored_.empty()) first_ignored_ = member.position;
      ignored_ += (ignored_.empty() ? "" : ", ") + key;
    }
  }

  // Looks for a replacement by meaning first, then by spelling.
  static std::string Remedy(const JsonMember& member, const std::string& key,
                            const FileKey& parent) {
    const std::string& name = member.name;
    if (FindSetting(name) != nullptr && name.find('.') != std::string::npos) {
      return "; write its parts as nested objects";
    }
    const std::string foreign(FindForeignHint(key));
    if (!foreign.empty()) {
      const bool has_parts = !member.node.members.empty() || !member.node.elements.empty();
      const std::string value = has_parts ? "..." : ShortDump(member.node.scalar);
      return ": " + FillMeaning(foreign, name, value);
    }
    const std::string hint = DidYouMean(name, MemberNames(parent.path));
    return hint.empty() ? SuggestSection(member) : hint;
  }

  // Returns true if the value is valid for this key.
  static bool CouldBe(const Setting& setting, Json value) {
    if (setting.state == SettingState::kSection) return value.is_object();
    return value == "auto" || !CheckValue(setting, &value);
  }

  // Suggests a key of the same name: at the top level, or in another section if exactly one has it
  // and accepts such a value.
  static std::string SuggestSection(const JsonMember& member) {
    const std::string& name = member.name;
    if (!MemberPath("", name).empty()) return "; did you mean '" + name + "' at the top level?";
    std::vector<std::string> paths = FindPathsEndingIn(name);
    std::erase_if(paths, [&](const std::string& path) {
      const Setting* const setting = FindSetting(path);
      return setting->state == SettingState::kRenamed || !CouldBe(*setting, member.node.scalar);
    });
    return paths.size() == 1 ? "; did you mean '" + paths.front() + "'?" : "";
  }

  std::optional<Json> ReadMember(const JsonNode& node, const FileKey& file_key) {
    const Setting* setting = FindSetting(file_key.path);
    if (setting == nullptr || setting->state == SettingState::kSection) {
      return ReadSection(node, setting, file_key);
    }
    return ReadValue(node, *setting, file_key);
  }

  std::optional<Json> ReadSection(const JsonNode& node, const Setting* setting,
                                  const FileKey& file_key) {
    if (node.scalar.is_null() && setting != nullptr && !setting->required) return std::nullopt;
    const bool takes_auto = setting != nullptr && setting->auto_rule == AutoRule::kDefault;
    if (node.scalar == "auto" && takes_auto) return std::nullopt;  // all keys at their defaults
    if (node.scalar.is_boolean() && file_key.path == keys::kZeroOptimization) {
      return ReadLegacyZero(node);
    }
    if (!node.scalar.is_object()) {
      issues_.Error(file_key.key,
                    file_key.key + " must be an object, not " + ShortDump(node.scalar),
                    node.position);
      return std::nullopt;
    }
    if (setting != nullptr && setting->enables) ReportPresence(node, file_key);
    // The user chose this name, so the section is kept even if it is empty.
    if (node.members.empty() && file_key.path.ends_with('>')) {
      issues_.Error(file_key.key, file_key.key + " is empty: give its keys, or remove it",
                    node.position);
    }
    Json plain = ReadObject(node, file_key);
    return plain.empty() ? std::nullopt : std::optional(std::move(plain));
  }

  // Old files switch ZeRO on and off by a plain boolean.
  Json ReadLegacyZero(const JsonNode& node) {
    const int stage = node.scalar.get<bool>() ? 1 : 0;
    const std::string key(keys::kZeroOptimizationStage);
    issues_.Warning(keys::kZeroOptimization,
                    "zero_optimization as true or false is an old form: it is read as stage " +
                        std::to_string(stage),
                    node.position);
    Give(node, *FindSetting(key), {key, key}, stage);
    return {{"stage", stage}};
  }

  // Returns a key of the section that works; "" if there is none.
  static std::string FindBuiltKey(const std::string& section) {
    for (const std::string& name : MemberNames(section)) {
      const Setting* setting = FindSetting(section + "." + name);
      if (setting != nullptr && setting->state == SettingState::kWorks) return name;
    }
    return "";
  }

  // Reports sections that switch a feature on by being present. Keys at their default are always
  // accepted, so only an empty section is an error, and sparse_attention, which changes the trained
  // model.
  void ReportPresence(const JsonNode& node, const FileKey& file_key) {
    if (const std::string key = FindBuiltKey(file_key.path); !key.empty()) {
      if (!node.members.empty()) return;
      issues_.Error(file_key.key,
                    file_key.key +
                        " is empty, which means all of its defaults: write one of them, " + key +
                        " for one",
                    node.position);
      return;
    }
    const std::string feature = file_key.key + " is not supported yet";
    if (node.members.empty() || file_key.path == keys::kSparseAttention) {
      issues_.Error(file_key.key, feature + ": remove it", node.position);
    } else {
      issues_.Warning(file_key.key, feature + ": it stays off", node.position);
    }
  }

  std::optional<Json> ReadValue(const JsonNode& node, const Setting& setting,
                                const FileKey& file_key) {
    Json value = FullValue(node);
    if (IsDefault(setting, value)) return ReadDefault(node, setting, file_key, std::move(value));
    if (value == "auto" && setting.auto_rule != AutoRule::kValue) {
      return ReadAuto(node, setting, file_key);
    }
    if (const auto problem = CheckValue(setting, &value)) {
      issues_.Error(file_key.key, file_key.key + " " + *problem, node.position);
      values_.MarkBroken(file_key.key);
      return std::nullopt;
    }
    Give(node, setting, file_key, value);
    ReadElements(node, file_key);
    return value;
  }

  std::optional<Json> ReadDefault(const JsonNode& node, const Setting& setting,
                                  const FileKey& file_key, Json value) {
    if (value.is_null()) return std::nullopt;  // as if it were absent
    // The file may write the number in another form than the registry: 1 for 1.0.
    if (value.is_number()) value = DefaultValue(setting);
    Give(node, setting, file_key, value);
    return value;
  }

  std::optional<Json> ReadAuto(const JsonNode& node, const Setting& setting,
                               const FileKey& file_key) {
    if (setting.auto_rule == AutoRule::kRefused) {
      const char* const advice = setting.state == SettingState::kRefused
                                     ? "remove the key"
                                     : "give a value or remove the key";
      issues_.Error(file_key.key,
                    file_key.key + " cannot be \"auto\": nothing in this job determines it; " +
                        advice + DefaultHint(setting),
                    node.position);
      values_.MarkBroken(file_key.key);
      return std::nullopt;
    }
    values_.MarkAuto(file_key.key, node.position);
    if (setting.auto_rule == AutoRule::kDefault) {
      values_.Give(
          file_key.key,
          {.setting = &setting,
           .value = DefaultValue(setting),
           .origin = "\"auto\" at " + issues_.DescribePosition(node.position) + ": the default"});
    }
    return std::nullopt;
  }

  static std::string DefaultHint(const Setting& setting) {
    const bool has_default = !setting.required && setting.default_json != "null";
    return has_default ? " (default " + std::string(setting.default_json) + ")" : "";
  }

  // Reads the objects of a list with members that are keys of their own, such as layer_specs.
  void ReadElements(const JsonNode& node, const FileKey& file_key) {
    if (!HasChildren(file_key.path + "[]")) return;
    for (std::size_t i = 0; i < node.elements.size(); ++i) {
      const std::string key = file_key.key + "[" + std::to_string(i) + "]";
      if (node.elements[i].scalar.is_object()) {
        ReadObject(node.elements[i], {file_key.path + "[]", key});
      } else {
        issues_.Error(key, key + " must be an object", node.elements[i].position);
      }
    }
  }

  void Give(const JsonNode& node, const Setting& setting, const FileKey& file_key, Json value) {
    values_.Give(file_key.key, {.setting = &setting,
                                .value = std::move(value),
                                .origin = issues_.DescribePosition(node.position),
                                .position = node.position,
                                .given = true});
  }

  Values& values_;
  IssueLog& issues_;
  UnknownKeys unknown_;
  std::string ignored_;  // the ignored unknown keys, as a list
  JsonPosition first_ignored_;
  std::map<std::string, std::string> names_seen_;  // maps a key to its name in the file
};

}  // namespace

Json ReadValues(const JsonNode& root, Values* values, IssueLog* issues, UnknownKeys unknown) {
  return ValueReader(values, issues, unknown).ReadFile(root);
}

}  // namespace ds::config
