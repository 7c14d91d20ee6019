#include "runtime/plan/model/config_reader.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/suggest.h"

namespace ds::models {
namespace {

// No model size is larger. Three times the product of two sizes does not overflow 64 bits.
constexpr std::int64_t kMostSize = 1 << 30;

}  // namespace

const nlohmann::ordered_json* ConfigReader::Find(const std::string& key) {
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::IsNull(const std::string& key) const {
  const auto found = json_.find(key);
  return found != json_.end() && found->is_null();
}

void ConfigReader::Refuse(const std::string& message) {
  if (status_.ok()) status_ = InvalidArgumentError(prefix_ + message);
}

std::int64_t ConfigReader::Int(const std::string& key, std::int64_t absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_number_integer() || *value < 1 || *value > kMostSize) {
    Refuse("'" + key + "' must be a whole number from 1 to " + std::to_string(kMostSize) +
           ", not " + value->dump());
    return absent;
  }
  return value->get<std::int64_t>();
}

std::int64_t ConfigReader::IntOrNone(const std::string& key, std::int64_t absent) {
  return Int(key, IsNull(key) ? 0 : absent);
}

double ConfigReader::Number(const std::string& key, double absent, Range range) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= range.least && number <= range.most)) {
    Refuse("'" + key + "' must be a number from " + nlohmann::json(range.least).dump() + " to " +
           nlohmann::json(range.most).dump() + ", not " + value->dump());
    return absent;
  }
  return number;
}

double ConfigReader::NumberOrNone(const std::string& key, double absent, Range range) {
  return Number(key, IsNull(key) ? 0.0 : absent, range);
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

template <typename Element>
std::optional<std::vector<Element>> ConfigReader::List(const std::string& key, const char* elements,
                                                       bool (nlohmann::ordered_json::*is_one)()
                                                           const noexcept) {
  const auto* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_array() && std::all_of(value->begin(), value->end(),
                                       [&](const auto& element) { return (element.*is_one)(); });
  if (fits) return value->template get<std::vector<Element>>();
  Refuse("'" + key + "' must be a list of " + elements + ", not " + value->dump());
  return std::nullopt;
}

std::optional<std::vector<double>> ConfigReader::Numbers(const std::string& key) {
  return List<double>(key, "numbers", &nlohmann::ordered_json::is_number);
}

std::optional<std::vector<std::string>> ConfigReader::Strings(const std::string& key) {
  return List<std::string>(key, "strings", &nlohmann::ordered_json::is_string);
}

Status ConfigReader::Finish() const {
  if (!status_.ok()) return status_;
  for (const auto& item : json_.items()) {
    if (known_.contains(item.key())) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    return InvalidArgumentError(prefix_ + "'" + item.key() +
                                "' is not a key known for this model type" +
                                DidYouMean(item.key(), known) +
                                " (it may change the mathematics, so it is not ignored; remove it "
                                "if the model does not need it)");
  }
  return OkStatus();
}

}  // namespace ds::models
