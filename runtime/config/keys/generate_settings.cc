// Generates three files from settings.json: settings_table.inc, the constant table behind
// registry.h; keys.h, with a constant for each key; and the reference page of all keys.
//
//     ds_generate_settings SETTINGS_JSON TABLE KEYS PAGE
//
// An inconsistent entry fails the build with the entry's key: an unknown field, a default outside
// its own type, range or choices, a switch that does not exist. So does an incomplete one: a
// working key without its cost, an accepted key without a reason, a refused key without a missing
// feature ("not_built", by the longest prefix of the key), a renamed key without a target.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

const std::map<std::string, std::string> kTypes = {
    {"bool", "kBool"}, {"int", "kInt"},       {"float", "kFloat"}, {"string", "kString"},
    {"list", "kList"}, {"object", "kObject"}, {"any", "kAny"}};
const std::map<std::string, std::string> kStates = {{"section", "kSection"},
                                                    {"works", "kWorks"},
                                                    {"accepted", "kAccepted"},
                                                    {"refused", "kRefused"},
                                                    {"renamed", "kRenamed"}};
const std::map<std::string, std::string> kAutoRules = {{"refused", "kRefused"},
                                                       {"default", "kDefault"},
                                                       {"derive", "kDerived"},
                                                       {"resolve", "kResolved"},
                                                       {"value", "kValue"}};
const std::vector<std::string> kFields = {
    "key",     "section", "type",     "choices",    "ignore_case", "min",      "max",
    "default", "auto",    "required", "harmless",   "state",       "reason",   "switch",
    "enables", "doc",     "cost",     "renamed_to", "carries",     "per_group"};

// Reports a problem of settings.json and ends the program: this is a build step.
[[noreturn]] void Fail(const std::string& key, const std::string& problem) {
  std::cerr << "settings.json: " << key << ": " << problem << "\n";
  std::exit(1);
}

bool Has(const Json& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool FitsType(const Json& value, const std::string& type) {
  if (type == "bool") return value.is_boolean();
  if (type == "int") return value.is_number_integer();
  if (type == "float") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "list") return value.is_array();
  if (type == "object") return value.is_object();
  return true;
}

void CheckDefault(const Json& entry, const std::string& key) {
  const Json& value = entry["default"];
  const bool is_auto_value = entry.value("auto", "") == "value" && value == "auto";
  if (value.is_null() || is_auto_value) return;
  if (!FitsType(value, entry["type"])) Fail(key, "the default is not of its type");
  if (entry.contains("choices") && !Has(entry["choices"], value)) {
    Fail(key, "the default is not one of the choices");
  }
  if (value.is_number() &&
      (value < entry.value("min", value) || value > entry.value("max", value))) {
    Fail(key, "the default is out of range");
  }
}

void CheckEntry(const Json& entry, const std::vector<std::string>& keys) {
  const std::string key = entry["key"];
  for (const auto& [field, value] : entry.items()) {
    if (!Has(Json(kFields), field)) Fail(key, "unknown field " + field);
  }
  const auto exists = [&](const std::string& name) {
    return std::find(keys.begin(), keys.end(), name) != keys.end();
  };
  const bool has_children = std::any_of(keys.begin(), keys.end(), [&](const std::string& other) {
    return other.starts_with(key + ".");
  });
  if (std::count(keys.begin(), keys.end(), key) != 1) Fail(key, "declared twice");
  if (has_children != (entry["state"] == "section")) Fail(key, "a section must have keys");
  if (entry["doc"].get<std::string>().empty()) Fail(key, "has no doc");
  if (entry.contains("reason") != (entry["state"] == "accepted")) {
    Fail(key, "accepted keys, and no others, need a reason");
  }
  if (entry.contains("cost") != (entry["state"] == "works")) {
    Fail(key, "keys that work, and no others, need a cost");
  }
  if (entry.contains("renamed_to") != (entry["state"] == "renamed")) {
    Fail(key, "renamed keys, and no others, need a new name");
  }
  if (entry.contains("renamed_to") && !exists(entry["renamed_to"])) Fail(key, "unknown new name");
  if (entry.contains("switch") && !exists(entry["switch"])) Fail(key, "unknown switch");
  if (entry.value("per_group", false) && entry["type"] != "float") {
    Fail(key, "a key per parameter group must be a number");
  }
  if (entry.value("required", false) == entry.contains("default")) {
    Fail(key, "has either a default or required");
  }
  if (entry.contains("default")) CheckDefault(entry, key);
}

// Returns the longest of `prefixes` (names of an object) that `key` begins with, by dotted parts,
// or "".
std::string LongestPrefix(const std::string& key, const Json& prefixes) {
  std::string prefix = key;
  while (!prefix.empty() && !prefixes.contains(prefix)) {
    const std::size_t dot = prefix.rfind('.');
    prefix.resize(dot == std::string::npos ? 0 : dot);
  }
  return prefix;
}

// In these sections DeepSpeed treats "auto" as the default, for every key that has a default.
void FillAutoRules(Json* registry) {
  Json sections = Json::object();
  for (const Json& section : registry->at("auto_is_default")) sections[section] = true;
  for (Json& entry : registry->at("settings")) {
    const std::string key = entry["key"];
    const bool below = key.find('.') != std::string::npos && !LongestPrefix(key, sections).empty();
    if (below && entry.contains("default") && !entry.contains("auto")) entry["auto"] = "default";
  }
}

// Sets the reason of each refused entry to the reason of its feature.
void FillReasons(Json* registry) {
  const Json& not_built = registry->at("not_built");
  std::set<std::string> missing;
  for (Json& entry : registry->at("settings")) {
    if (entry["state"] != "refused") continue;
    const std::string feature = LongestPrefix(entry["key"], not_built);
    if (feature.empty()) Fail(entry["key"], "is refused, so not_built must give the reason");
    entry["reason"] = not_built[feature];
    missing.insert(feature);
  }
  for (const auto& [feature, reason] : not_built.items()) {
    if (!missing.contains(feature)) Fail(feature, "nothing is refused for it: leave not_built");
  }
}

// Returns a C++ string literal. JSON's escapes equal C++'s for the characters used here.
std::string Quoted(const std::string& text) { return Json(text).dump(); }

std::string ListLiteral(const Json& entry, const char* field) {
  return Quoted(entry.contains(field) ? entry[field].dump() : "[]");
}

std::string Limit(const Json& entry, const char* field, const char* otherwise) {
  return entry.contains(field) ? entry[field].dump() : otherwise;
}

std::string Row(const Json& entry) {
  const auto flag = [&](const char* field) { return entry.value(field, false) ? "true" : "false"; };
  const auto text = [&](const char* field) { return Quoted(entry.value(field, "")); };
  const Json absent;
  const Json& default_value = entry.contains("default") ? entry["default"] : absent;
  std::string row = "    {" + text("key") + ", ValueType::" + kTypes.at(entry["type"]);
  row += ", SettingState::" + kStates.at(entry["state"]);
  row += ", AutoRule::" + kAutoRules.at(entry.value("auto", "refused"));
  for (const char* field : {"required", "ignore_case", "enables", "per_group"})
    row += ", " + std::string(flag(field));
  row += ", " + Limit(entry, "min", "kNoMinimum") + ", " + Limit(entry, "max", "kNoMaximum");
  row += ", " + Quoted(default_value.dump());
  for (const char* field : {"choices", "harmless"}) row += ", " + ListLiteral(entry, field);
  row += ", " + Quoted(entry.contains("carries") ? entry["carries"].dump() : "{}");
  for (const char* field : {"switch", "renamed_to", "reason", "doc", "cost"}) {
    row += ", " + text(field);
  }
  return row + "},\n";
}

std::string Pairs(const char* name, const Json& object) {
  std::string text = "constexpr NamePair " + std::string(name) + "[] = {\n";
  for (const auto& [from, to] : object.items()) {
    text += "    {" + Quoted(from) + ", " + Quoted(to) + "},\n";
  }
  return text + "};\n";
}

void CheckRegistry(const Json& registry, const std::vector<std::string>& keys) {
  for (const Json& entry : registry["settings"]) CheckEntry(entry, keys);
  std::set<std::string> foreign;
  for (const Json& row : registry["foreign"]) {
    for (const Json& name : row["keys"]) {
      if (!foreign.insert(name).second) Fail(name, "is twice among the foreign names");
      if (Has(Json(keys), name) || registry["aliases"].contains(name.get<std::string>())) {
        Fail(name, "is a key, so that it cannot be a foreign name");
      }
    }
  }
}

// Maps each foreign name to the text with its replacement.
Json ForeignNames(const Json& registry) {
  Json names = Json::object();
  for (const Json& row : registry["foreign"]) {
    for (const Json& name : row["keys"]) names[name.get<std::string>()] = row["instead"];
  }
  return names;
}

std::string Table(const Json& registry, const std::vector<std::string>& keys) {
  std::string text = "constexpr Setting kSettings[] = {\n";
  for (const Json& entry : registry["settings"]) text += Row(entry);
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
  text += "};\nconstexpr std::uint16_t kByKey[] = {";
  for (const std::size_t index : order) text += std::to_string(index) + ",";
  return text + "};\n" + Pairs("kAliases", registry["aliases"]) +
         Pairs("kRetired", registry["retired"]) + Pairs("kForeign", ForeignNames(registry));
}

// "optimizer.params.lr" is kOptimizerParamsLr.
std::string ConstantName(const std::string& key) {
  std::string name = "k";
  bool starts_word = true;
  for (const char c : key) {
    const bool separates = c == '.' || c == '_';
    if (!separates) {
      name += starts_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    }
    starts_word = separates;
  }
  return name;
}

// Omits deprecated names and paths with a placeholder, which code does not use.
std::string KeyConstants(const Json& registry) {
  std::string text = "#pragma once\n\n#include \"runtime/config/keys/key.h\"\n\n";
  text += "namespace ds::config::keys {\n\n";
  std::set<std::string> names;
  for (const Json& entry : registry["settings"]) {
    const std::string key = entry["key"];
    if (entry["state"] == "renamed" || key.find_first_of("<[") != std::string::npos) continue;
    const std::string name = ConstantName(key);
    if (!names.insert(name).second) Fail(key, "another key has the constant " + name);
    text += "inline constexpr Key " + name + "{" + Quoted(key) + "};\n";
  }
  return text + "\n}  // namespace ds::config::keys\n";
}

std::string Code(const std::string& text) { return "`" + text + "`"; }

// Escapes text for a cell of a table.
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

// Builds the reference page: a table for every section, a row for every key. Requires a checked
// registry with the reasons of refused keys filled in.
std::string MakeSettingsPage(const Json& registry) {
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
      "# ds_config: all keys with type, default, state and meaning\n\nEvery key, made from "
      "`runtime/config/keys/settings.json` when dsrun was built. A key at its default is always "
      "accepted; `dsrun check` validates a file; `config.resolved.json` of a run has the value and "
      "the origin of every key.\n";
  for (const std::string& section : sections) {
    page += "\n## " + section +
            "\n\n| key | type | default | state | meaning |\n|---|---|---|---|---|\n";
    page += rows[section];
  }
  page +=
      "\n## Names of other programs\n\nThese are not keys. dsrun prints the replacement; `{}` is "
      "the value in the file.\n\n| name | instead |\n|---|---|\n";
  const Json foreign = ForeignNames(registry);
  for (const auto& [name, instead] : foreign.items()) {
    page += "| " + Code(name) + " | " + Escaped(instead) + " |\n";
  }
  return page;
}

// Ends the program when the file cannot be written.
void Write(const char* path, const std::string& text) {
  std::ofstream output(path);
  output << text;
  output.close();
  if (!output) Fail(path, "cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) Fail("usage", "ds_generate_settings SETTINGS_JSON TABLE KEYS PAGE");
  std::ifstream input(argv[1]);
  Json registry = Json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (!registry.is_object()) Fail(argv[1], "is not a JSON object");
  std::vector<std::string> keys;
  for (const Json& entry : registry["settings"]) keys.push_back(entry["key"]);
  CheckRegistry(registry, keys);
  FillAutoRules(&registry);
  FillReasons(&registry);
  const std::string origin = "// Generated by generate_settings.cc from settings.json.\n";
  Write(argv[2], origin + Table(registry, keys));
  Write(argv[3], origin + KeyConstants(registry));
  Write(argv[4], MakeSettingsPage(registry));
  return 0;
}
