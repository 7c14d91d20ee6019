#pragma once

// ConfigReader: reads the keys of one config.json with defaults and checks, and remembers the first
// error, so that a family's parser is a plain list of its keys. Every key must be read or be listed
// as harmless.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "runtime/base/status.h"

namespace ds::models {

class ConfigReader {
 public:
  // `json` is an object and outlives the reader.
  ConfigReader(const nlohmann::ordered_json& json, std::string file_name)
      : json_(json), file_name_(std::move(file_name)) {}

  // A whole number from 1 to 2^31 - 1. An explicit null counts as absent, here and below.
  std::int64_t Int(const std::string& key, std::int64_t absent);
  // A finite number from `least` to `most`.
  double Number(const std::string& key, double absent, double least, double most);
  double Probability(const std::string& key, double absent) { return Number(key, absent, 0, 1); }
  bool Bool(const std::string& key, bool absent);
  std::string String(const std::string& key, const std::string& absent);
  // The object under `key`, or an empty one.
  nlohmann::ordered_json Object(const std::string& key);

  // Marks a key as known whatever its value: it does not change the training mathematics.
  void IgnoreKey(const std::string& key) { known_.insert(key); }

  // Records "FILE: `message`" unless an earlier error is there.
  void Refuse(const std::string& message);

  // The first error, or the first key that nobody asked for.
  Status Finish() const;

 private:
  const nlohmann::ordered_json* Find(const std::string& key);

  const nlohmann::ordered_json& json_;
  std::string file_name_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace ds::models
