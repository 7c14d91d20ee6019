#include "runtime/config/file/resolved_config.h"

#include <string>
#include <utility>

#include "runtime/config/file/section_order.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

bool IsConcreteKey(const Setting& setting) {
  return setting.state != SettingState::kSection && setting.state != SettingState::kRenamed &&
         setting.key.find_first_of("<[") == std::string_view::npos;
}

// Returns true if the key was set by the user, a flag or "auto", or is read by the runtime.
bool IsInForce(const Values& values, const Setting& setting) {
  const auto entry = values.entries().find(setting.key);
  const bool is_set = entry != values.entries().end() && !entry->second.broken &&
                      (entry->second.given || entry->second.is_forwarded);
  return is_set || values.autos().contains(setting.key) || setting.state == SettingState::kWorks;
}

// Removes a key, and the sections that are empty then. Does nothing if it is absent.
void Erase(std::string_view path, Json* config) {
  const std::size_t dot = path.find('.');
  const auto found = config->find(std::string(path.substr(0, dot)));
  if (found == config->end()) return;
  if (dot != std::string_view::npos) {
    if (!found->is_object()) return;
    Erase(path.substr(dot + 1), &*found);
    if (!found->empty()) return;
  }
  config->erase(found);
}

}  // namespace

void PutAt(std::string_view path, Json value, Json* config) {
  for (std::size_t dot; (dot = path.find('.')) != std::string_view::npos;) {
    config = &(*config)[std::string(path.substr(0, dot))];
    path.remove_prefix(dot + 1);
  }
  (*config)[std::string(path)] = std::move(value);
}

const Json* FindIn(const Json& config, std::string_view path) {
  const std::size_t dot = path.find('.');
  const auto found = config.find(std::string(path.substr(0, dot)));
  if (found == config.end()) return nullptr;
  return dot == std::string_view::npos ? &*found : FindIn(*found, path.substr(dot + 1));
}

Json MakeResolvedConfig(const Values& values, const Json& given) {
  Json config = given;
  for (const Setting& setting : AllSettings()) {
    const bool is_old = setting.state == SettingState::kRenamed;
    if (is_old || (IsConcreteKey(setting) && OmitsKey(values, Key(setting.key)))) {
      Erase(setting.key, &config);
    }
  }
  for (const Setting& setting : AllSettings()) {
    const Key key(setting.key);
    if (!IsConcreteKey(setting) || !IsInForce(values, setting) || OmitsKey(values, key)) continue;
    if (Json value = values.Get(key); !value.is_null()) PutAt(key, std::move(value), &config);
  }
  return config;
}

Json ListOrigins(const Values& values) {
  // Filled as the vector of pairs that it is, since looking up each name first would be slow.
  Json::object_t origins;
  for (const Setting& setting : AllSettings()) {
    if (!IsConcreteKey(setting)) continue;
    const Key key(setting.key);
    const std::string origin = values.OriginOf(key);
    const bool in_force = IsInForce(values, setting);
    if (!in_force && origin == "default") continue;
    const Json value = values.Get(key);
    if (value.is_null()) continue;
    if (in_force && !OmitsKey(values, key)) {
      origins.push_back({std::string(key), origin});
    } else if (origin != "default" && !values.IsGiven(key)) {
      origins.push_back({std::string(key), value.dump() + ", " + origin});
    }
  }
  for (const auto& [key, entry] : values.entries()) {
    if (FindSetting(key) == nullptr && !entry.broken) origins.push_back({key, entry.origin});
  }
  return origins;
}

}  // namespace ds::config
