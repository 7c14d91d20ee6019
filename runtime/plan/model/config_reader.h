#pragma once

// ConfigReader: the keys of one config.json, read with defaults and checks. It remembers the first
// error, so that what it is read for is a plain list of keys. Every key must be asked for or be
// listed as harmless; one that nobody knows may change the mathematics and is an error.
//
// A key that is absent has the given default. A null counts as absent, but where "OrNone" says that
// it means none.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::models {

class ConfigReader {
 public:
  // `json` is an object and outlives the reader; messages begin with `file_name` unless it is
  // empty.
  ConfigReader(const nlohmann::ordered_json& json, const std::string& file_name)
      : json_(json), prefix_(file_name.empty() ? "" : file_name + ": ") {}

  // A whole number from 1 to 2^30.
  std::int64_t Int(const std::string& key, std::int64_t absent);
  // The same, or 0 for null.
  std::int64_t IntOrNone(const std::string& key, std::int64_t absent);
  // A finite number from `least` to `most`.
  struct Range {
    double least = 0.0, most = 1.0;
  };
  double Number(const std::string& key, double absent, Range range);
  // The same, or 0 for null.
  double NumberOrNone(const std::string& key, double absent, Range range);
  bool Bool(const std::string& key, bool absent);
  std::string String(const std::string& key, const std::string& absent);
  // The object under `key`, or an empty one.
  nlohmann::ordered_json Object(const std::string& key);
  // A list of numbers or of strings; absent: no value.
  std::optional<std::vector<double>> Numbers(const std::string& key);
  std::optional<std::vector<std::string>> Strings(const std::string& key);

  // Marks a key as known whatever its value: it does not change the training mathematics.
  void IgnoreKey(const std::string& key) { known_.insert(key); }

  // Records `message` unless an earlier error is there.
  void Refuse(const std::string& message);

  // The first error so far.
  const Status& status() const { return status_; }
  // The first error, or the first key that nobody asked for.
  Status Finish() const;

 private:
  // The value, unless it is absent or null.
  const nlohmann::ordered_json* Find(const std::string& key);
  bool IsNull(const std::string& key) const;
  template <typename Element>
  std::optional<std::vector<Element>> List(const std::string& key, const char* elements,
                                           bool (nlohmann::ordered_json::*is_one)() const noexcept);

  const nlohmann::ordered_json& json_;
  std::string prefix_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace ds::models
