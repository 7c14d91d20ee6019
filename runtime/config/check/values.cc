#include "runtime/config/check/values.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {

void Values::Give(std::string key, Entry entry) {
  const bool inserted = entries_.emplace(std::move(key), std::move(entry)).second;
  DS_CHECK(inserted);
}

void Values::Derive(Key key, nlohmann::ordered_json value, std::string origin) {
  Entry& entry = entries_[std::string(key)];
  entry.setting = FindSetting(key);
  DS_CHECK_MSG(entry.setting != nullptr, key);
  entry.value = std::move(value);
  entry.origin = std::move(origin);
}

void Values::Carry(Key key, nlohmann::ordered_json value, const Entry& old) {
  Derive(key, std::move(value), old.origin + " (" + std::string(old.setting->key) + ")");
  Entry& entry = entries_[std::string(key)];
  entry.position = old.position;
  entry.given = true;
}

void Values::Resolve(Key key, nlohmann::ordered_json value, std::string origin, Source source) {
  Derive(key, std::move(value), std::move(origin));
  Entry& entry = entries_[std::string(key)];
  entry.given = source == Source::kUser;
  entry.is_forwarded = true;
}

void Values::MarkBroken(const std::string& key) { entries_[key].broken = true; }

nlohmann::ordered_json Values::Get(Key key) const {
  if (const Entry* entry = Find(key); entry != nullptr) return entry->value;
  const Setting* setting = FindSetting(key);
  DS_CHECK_MSG(setting != nullptr, key);
  return DefaultValue(*setting);
}

std::string Values::OriginOf(Key key) const {
  const Entry* entry = Find(key);
  return entry == nullptr ? "default" : entry->origin;
}

bool Values::IsGiven(Key key) const {
  const Entry* entry = Find(key);
  return entry != nullptr && entry->given;
}

bool Values::IsKnown(Key key) const {
  const Entry* entry = Find(key);
  return entry != nullptr && (entry->given || entry->is_forwarded);
}

bool Values::IsBroken(Key key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.broken;
}

JsonPosition Values::PositionOf(Key key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? JsonPosition{} : found->second.position;
}

const Values::Entry* Values::Find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() || found->second.broken ? nullptr : &found->second;
}

}  // namespace ds::config
