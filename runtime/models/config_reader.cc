#include "runtime/models/config_reader.h"

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/suggest.h"

namespace ds::models {

const nlohmann::ordered_json* ConfigReader::Find(const std::string& key) {
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::Refuse(const std::string& message) {
  if (status_.ok()) status_ = InvalidArgumentError(file_name_ + ": " + message);
}

std::int64_t ConfigReader::Int(const std::string& key, std::int64_t absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  const auto most = std::numeric_limits<std::int32_t>::max();
  if (!value->is_number_integer() || *value < 1 || *value > most) {
    Refuse("'" + key + "' must be a whole number from 1 to " + std::to_string(most) + ", not " +
           value->dump());
    return absent;
  }
  return value->get<std::int64_t>();
}

double ConfigReader::Number(const std::string& key, double absent, double least, double most) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= least && number <= most)) {
    Refuse("'" + key + "' must be a number from " + nlohmann::json(least).dump() + " to " +
           nlohmann::json(most).dump() + ", not " + value->dump());
    return absent;
  }
  return number;
}

bool ConfigReader::Bool(const std::string& key, bool absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) Refuse("'" + key + "' must be true or false, not " + value->dump());
  return value->is_boolean() ? value->get<bool>() : absent;
}

std::string ConfigReader::String(const std::string& key, const std::string& absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) Refuse("'" + key + "' must be a string, not " + value->dump());
  return value->is_string() ? value->get<std::string>() : absent;
}

nlohmann::ordered_json ConfigReader::Object(const std::string& key) {
  const auto* value = Find(key);
  if (value == nullptr) return nlohmann::ordered_json::object();
  if (!value->is_object()) Refuse("'" + key + "' must be an object, not " + value->dump());
  return value->is_object() ? *value : nlohmann::ordered_json::object();
}

Status ConfigReader::Finish() const {
  if (!status_.ok()) return status_;
  for (const auto& item : json_.items()) {
    if (known_.contains(item.key())) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    return InvalidArgumentError(file_name_ + ": '" + item.key() +
                                "' is not a key known for this model type" +
                                DidYouMean(item.key(), known) +
                                " (it may change the mathematics, so it is not ignored; remove it "
                                "if the model does not need it)");
  }
  return OkStatus();
}

}  // namespace ds::models
