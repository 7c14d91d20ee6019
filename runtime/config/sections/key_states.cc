#include "runtime/config/sections/key_states.h"

#include <string>
#include <utility>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// What to do instead of giving `value`, or "" when what it asks for is built.
std::string WayOut(const Setting& setting, const Json& value) {
  // A switch answers for all keys of its feature.
  const bool answers = setting.state == SettingState::kRefused && setting.switch_key.empty();
  if (!answers || IsInList(setting.harmless_json, value)) return "";
  const std::string default_value(setting.default_json);
  return setting.required ? "remove it" : "remove it or leave it at " + default_value;
}

// What the value of a renamed key is called now.
Json CarriedValue(const Setting& setting, const Json& value) {
  const Json carries = Json::parse(setting.carries_json);
  const auto found = carries.find(value.dump());
  return found == carries.end() ? value : *found;
}

// A deprecated name stands for the new one, which may then not be given as well.
void DeprecatedNamesCarryTheirValue(RuleContext& context) {
  Values& values = context.values;
  std::vector<std::pair<std::string, Values::Entry>> renamed;
  for (const auto& [key, entry] : values.entries()) {
    const bool applies = entry.given && !entry.broken &&
                         entry.setting->state == SettingState::kRenamed &&
                         !IsDefault(*entry.setting, entry.value);
    if (applies) renamed.emplace_back(key, entry);
  }
  for (auto& [key, entry] : renamed) {
    const std::string new_key(entry.setting->renamed_to);
    if (values.IsGiven(Key(new_key)) || values.IsBroken(Key(new_key))) {
      context.issues.Error(key, key + " is the old name of " + new_key + ": give only the new one",
                           entry.position);
      continue;
    }
    const Json value = CarriedValue(*entry.setting, entry.value);
    context.issues.Warning(
        key, key + " is deprecated: write " + new_key + ": " + value.dump() + " instead",
        entry.position);
    values.Carry(Key(new_key), value, entry);
  }
}

// A feature is not built, and a key asks for it.
void RefuseWhatIsNotBuilt(RuleContext& context) {
  for (const auto& [key, entry] : context.values.entries()) {
    if (!entry.given || entry.broken || IsDefault(*entry.setting, entry.value)) continue;
    const std::string way_out = WayOut(*entry.setting, entry.value);
    if (way_out.empty()) continue;
    std::string message = key;
    message += " " + ShortDump(entry.value) + " is not supported yet (";
    message += std::string(entry.setting->reason) + "): " + way_out;
    context.issues.Error(key, message, entry.position);
  }
}

// A key is given that changes nothing here; the user should know.
void ReportWhatHasNoEffect(RuleContext& context) {
  const Values& values = context.values;
  for (const auto& [key, entry] : values.entries()) {
    if (!entry.given || entry.broken || IsDefault(*entry.setting, entry.value)) continue;
    const Setting& setting = *entry.setting;
    if (setting.state == SettingState::kAccepted) {
      context.issues.Warning(key, key + " has no effect: " + std::string(setting.reason),
                             entry.position);
    } else if (!setting.switch_key.empty() &&
               IsDefault(*FindSetting(setting.switch_key), values.Get(Key(setting.switch_key)))) {
      context.issues.Warning(key,
                             key + " has no effect while " + std::string(setting.switch_key) +
                                 " is " + values.Get(Key(setting.switch_key)).dump(),
                             entry.position);
    }
  }
}

constexpr Rule kRenamedKeyRules[] = {
    {"DeprecatedNamesCarryTheirValue", {}, DeprecatedNamesCarryTheirValue}};
constexpr Rule kKeyStateRules[] = {{"RefuseWhatIsNotBuilt", {}, RefuseWhatIsNotBuilt},
                                   {"ReportWhatHasNoEffect", {}, ReportWhatHasNoEffect}};

}  // namespace

std::span<const Rule> RenamedKeyRules() { return kRenamedKeyRules; }

std::span<const Rule> KeyStateRules() { return kKeyStateRules; }

}  // namespace ds::config
