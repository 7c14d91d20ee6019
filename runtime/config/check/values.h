#pragma once

// Values: what every key of one config is, and why. Filled by the reader with what the file gives,
// then by the rules with what follows from it; a key neither touches has its default.
//
// Keys are concrete dotted paths. Not thread-safe while it is being filled.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/positioned_json.h"
#include "runtime/config/keys/key.h"
#include "runtime/config/keys/setting.h"

namespace ds::config {

class Values {
 public:
  struct Entry {
    const Setting* setting = nullptr;
    nlohmann::ordered_json value;
    std::string origin;     // "ds.json:3:4" or "derived from ..."
    JsonPosition position;  // in the file; unknown for what is derived
    bool given = false;     // by the user
    bool broken = false;    // given, but refused: rules that read it have nothing to say
    bool travels = false;   // from outside the file: goes to the ranks with what the file gives
  };
  enum class Source { kUser, kAuto };

  // Requires that `key` is not set yet.
  void Give(std::string key, Entry entry);
  // Sets or replaces the value of a key of the registry.
  void Derive(Key key, nlohmann::ordered_json value, std::string origin);
  // Gives a key of the registry the value that the file gives by an older name, `old`.
  void Carry(Key key, nlohmann::ordered_json value, const Entry& old);
  // The value of a key of the registry that comes from outside the file: the user's, or what
  // "auto" stands for in this job.
  void Resolve(Key key, nlohmann::ordered_json value, std::string origin, Source source);
  void MarkAuto(const std::string& key, JsonPosition position) { autos_[key] = position; }
  void MarkBroken(const std::string& key);

  // The value in force; the default when nothing else is known, null when there is none.
  nlohmann::ordered_json Get(Key key) const;
  // "default" when nothing else is known.
  std::string OriginOf(Key key) const;

  // Given by the user with a value other than null or "auto".
  bool IsGiven(Key key) const;
  // Given, or found from outside the file (Resolve).
  bool IsKnown(Key key) const;
  bool IsBroken(Key key) const;
  JsonPosition PositionOf(Key key) const;

  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // The keys that the file gives as "auto", and where.
  const std::map<std::string, JsonPosition, std::less<>>& autos() const { return autos_; }

 private:
  const Entry* Find(std::string_view key) const;

  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, JsonPosition, std::less<>> autos_;
};

}  // namespace ds::config
