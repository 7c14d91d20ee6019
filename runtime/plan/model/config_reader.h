#pragma once

// ConfigReader: reads the keys of one config.json with defaults and checks. It keeps the first
// error, so that callers are plain lists of keys. Every key must be read or marked with IgnoreKey;
// any other key may change the mathematics and is an error.
//
// An absent key has the given default. Null counts as absent, except in the functions named
// "OrNone", which return 0 for it.

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
  // Requires `json` to be an object that outlives this one. Messages begin with `file_name` unless
  // it is empty.
  ConfigReader(const nlohmann::ordered_json& json, const std::string& file_name)
      : json_(json), prefix_(file_name.empty() ? "" : file_name + ": ") {}

  // Reads an integer from 1 to 2^30.
  std::int64_t Int(const std::string& key, std::int64_t absent);
  // Like Int, but returns 0 for null.
  std::int64_t IntOrNone(const std::string& key, std::int64_t absent);
  // Reads a finite number from `least` to `most`.
  struct Range {
    double least = 0.0, most = 1.0;
  };
  double Number(const std::string& key, double absent, Range range);
  // Like Number, but returns 0 for null.
  double NumberOrNone(const std::string& key, double absent, Range range);
  bool Bool(const std::string& key, bool absent);
  std::string String(const std::string& key, const std::string& absent);
  // Returns the object under `key`, or an empty one.
  nlohmann::ordered_json Object(const std::string& key);
  // Reads a list of numbers or of strings; nullopt when absent.
  std::optional<std::vector<double>> Numbers(const std::string& key);
  std::optional<std::vector<std::string>> Strings(const std::string& key);

  // Marks a key as known with any value: it does not change the training mathematics.
  void IgnoreKey(const std::string& key) { known_.insert(key); }

  // Records `message`, unless there is an earlier error.
  void Refuse(const std::string& message);

  // The first error so far.
  const Status& status() const { return status_; }
  // Returns the first error, or an error that names the first unknown key.
  Status Finish() const;

 private:
  // Returns the value, or null if it is absent or null.
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
