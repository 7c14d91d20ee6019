#pragma once

// Values holds the value of every key of one config, and its origin. The reader fills in the values
// of the file, then the rules derive others. A key that neither sets has its default.
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
    std::string origin;         // "ds.json:3:4" or "derived from ..."
    JsonPosition position;      // in the file; unknown for derived values
    bool given = false;         // by the user
    bool broken = false;        // given, but rejected: rules that read it are skipped
    bool is_forwarded = false;  // from outside the file: sent to the ranks with the file's values
  };
  enum class Source { kUser, kAuto };

  // Sets a value read from the file. Requires that `key` is not set yet.
  void Give(std::string key, Entry entry);
  // Sets or replaces the value of a registry key.
  void Derive(Key key, nlohmann::ordered_json value, std::string origin);
  // Sets a registry key to the converted value of its older name, given in the file as `old`.
  void Carry(Key key, nlohmann::ordered_json value, const Entry& old);
  // Sets a registry key to a value from outside the file: the user's (a flag), or the resolution of
  // "auto" in this job.
  void Resolve(Key key, nlohmann::ordered_json value, std::string origin, Source source);
  void MarkAuto(const std::string& key, JsonPosition position) { autos_[key] = position; }
  void MarkBroken(const std::string& key);

  // Returns the value in force: the default for a key that is not set, null without a default.
  nlohmann::ordered_json Get(Key key) const;
  // Returns "default" for a key that is not set.
  std::string OriginOf(Key key) const;

  // Returns true if the user gave a value other than null or "auto".
  bool IsGiven(Key key) const;
  // Returns true if the value was given, or found outside the file (Resolve).
  bool IsKnown(Key key) const;
  bool IsBroken(Key key) const;
  JsonPosition PositionOf(Key key) const;

  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // Returns the keys that the file gives as "auto", with their positions.
  const std::map<std::string, JsonPosition, std::less<>>& autos() const { return autos_; }

 private:
  const Entry* Find(std::string_view key) const;

  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, JsonPosition, std::less<>> autos_;
};

}  // namespace ds::config
