#include "runtime/config/keys/settings_page.h"

#include <map>
#include <string_view>
#include <vector>

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

std::string Code(const std::string& text) { return "`" + text + "`"; }

// Text inside a cell of a table.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '<') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string JoinedCodes(const Json& values) {
  std::string text;
  for (const Json& value : values) text += (text.empty() ? "" : ", ") + Code(value.dump());
  return text;
}

std::string TypeCell(const Json& entry) {
  if (entry.contains("choices")) return JoinedCodes(entry["choices"]);
  std::string type = entry["type"];
  if (entry.contains("min")) type += ", at least " + entry["min"].dump();
  if (entry.contains("max")) type += ", at most " + entry["max"].dump();
  if (entry.value("per_group", false)) type += "; or a list, one per parameter group";
  return type;
}

std::string DefaultCell(const Json& entry) {
  return entry.contains("default") ? Escaped(Code(entry["default"].dump())) : "must be given";
}

std::string StateCell(const Json& entry) {
  std::string state = entry["state"];
  if (state == "renamed") return "deprecated: write " + Code(entry["renamed_to"]);
  if (state == "accepted") return "no effect: " + Escaped(entry["reason"]);
  if (state == "refused") return "refused: " + Escaped(entry["reason"]);
  return state;
}

std::string AutoText(const Json& entry) {
  static const std::map<std::string, std::string> kTexts = {
      {"default", " \"auto\" is the default."},
      {"derive", " \"auto\" follows from other keys."},
      {"resolve", " \"auto\" is resolved from flags, model and steps."}};
  const auto found = kTexts.find(entry.value("auto", ""));
  return found == kTexts.end() ? "" : found->second;
}

std::string MeaningCell(const Json& entry, const std::vector<std::string>& aliases) {
  std::string text = Escaped(entry["doc"]) + AutoText(entry);
  if (entry.contains("switch")) text += " Read when " + Code(entry["switch"]) + " is set.";
  for (const std::string& alias : aliases) text += " Also " + Code(alias) + ".";
  if (entry.contains("cost")) text += " *Changing it:* " + Escaped(entry["cost"]);
  return text;
}

}  // namespace

std::string SettingsPage(const Json& registry) {
  std::map<std::string, std::vector<std::string>> aliases;
  for (const auto& [alias, key] : registry["aliases"].items()) aliases[key].push_back(alias);
  std::vector<std::string> sections;  // in the order of their first key
  std::map<std::string, std::string> rows;
  for (const Json& entry : registry["settings"]) {
    const std::string section = entry["section"];
    if (!rows.contains(section)) sections.push_back(section);
    rows[section] += "| " + Code(entry["key"]) + " | " + TypeCell(entry) + " | " +
                     DefaultCell(entry) + " | " + StateCell(entry) + " | " +
                     MeaningCell(entry, aliases[entry["key"]]) + " |\n";
  }
  std::string page =
      "# Keys of the ds_config\n\n"
      "Every key, made from `runtime/config/keys/settings.json` when dsrun was built. A key at its "
      "default "
      "is always accepted; `dsrun check` says what is wrong with a file, `config.resolved.json` of "
      "a "
      "run what every key was and why.\n";
  for (const std::string& section : sections) {
    page += "\n## " + section +
            "\n\n| key | type | default | state | meaning |\n|---|---|---|---|---|\n";
    page += rows[section];
  }
  return page;
}

}  // namespace ds::config
