#include "runtime/config/check/value_check.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/base/suggest.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// All integers up to here are exact in a double.
constexpr double kLargestExactInteger = 9007199254740992.0;

bool IsWholeNumber(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= INT64_MAX;
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return number == std::floor(number) && std::abs(number) <= kLargestExactInteger;
}

bool HasType(const Json& value, ValueType type) {
  switch (type) {
    case ValueType::kBool:
      return value.is_boolean();
    case ValueType::kInt:
      return IsWholeNumber(value);
    case ValueType::kFloat:
      return value.is_number();
    case ValueType::kString:
      return value.is_string();
    case ValueType::kList:
      return value.is_array();
    case ValueType::kObject:
      return value.is_object();
    case ValueType::kAny:
      return true;
  }
  return false;
}

std::string_view TypeName(ValueType type) {
  switch (type) {
    case ValueType::kBool:
      return "true or false";
    case ValueType::kInt:
      return "a whole number";
    case ValueType::kFloat:
      return "a number";
    case ValueType::kString:
      return "a text in double quotes";
    case ValueType::kList:
      return "a list";
    case ValueType::kObject:
      return "an object";
    case ValueType::kAny:
      return "a value";
  }
  return "";
}

// Adds a hint for common wrong types: "8" instead of 8, which is the most frequent one, and
// Python's True instead of true. A Hjson string without quotes extends to the end of its line, so
// it includes the comma.
std::string SuggestIntendedValue(const Json& value, ValueType type) {
  if (!value.is_string()) return "";
  std::string text = value.get<std::string>();
  const Json inner = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!inner.is_discarded() && HasType(inner, type)) return ": remove the quotes";
  text.resize(text.find_last_not_of(", \t") + 1);
  if (text == "None") return ": write null";
  if (type != ValueType::kBool || (text != "True" && text != "False")) return "";
  return text == "True" ? ": write true in small letters" : ": write false in small letters";
}

std::string WrongType(const Json& value, ValueType type) {
  return "must be " + std::string(TypeName(type)) + ", not " + ShortDump(value) +
         SuggestIntendedValue(value, type);
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::optional<std::string> CheckChoices(const Setting& setting, Json* value) {
  const Json choices = Json::parse(setting.choices_json);
  if (choices.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const Json& choice : choices) {
    const auto& name = choice.get_ref<const std::string&>();
    const auto& given = value->get_ref<const std::string&>();
    if (name == given || (setting.ignore_case && EqualIgnoringCase(name, given))) {
      *value = name;
      return std::nullopt;
    }
    names.push_back(name);
  }
  return "must be " + ListAlternatives(setting.choices_json) + ", not " + ShortDump(*value) +
         DidYouMean(value->get_ref<const std::string&>(), names);
}

std::string LimitText(double limit) {
  return ShortDump(IsWholeNumber(limit) ? Json(static_cast<std::int64_t>(limit)) : Json(limit));
}

std::optional<std::string> CheckRange(const Setting& setting, const Json& value) {
  const double number = value.get<double>();
  if (number >= setting.minimum && number <= setting.maximum) return std::nullopt;
  if (std::isinf(setting.minimum))
    return "must be at most " + LimitText(setting.maximum) + ", not " + ShortDump(value);
  const std::string minimum = LimitText(setting.minimum);
  if (std::isinf(setting.maximum))
    return "must be at least " + minimum + ", not " + ShortDump(value);
  return "must be between " + minimum + " and " + LimitText(setting.maximum) + ", not " +
         ShortDump(value);
}

// Returns true for keys with the default "unset": for these, null is a distinct value.
bool DistinguishesNull(const Setting& setting) { return setting.default_json == R"("unset")"; }

// Checks a list with one number for each parameter group.
std::optional<std::string> CheckNumbers(const Setting& setting, Json* list) {
  if (list->empty()) return "must be a number or a list of them, not []";
  for (Json& value : *list) {
    if (!value.is_number()) return "must be a number or a list of them, not " + ShortDump(*list);
    value = value.get<double>();
    if (auto problem = CheckRange(setting, value)) return problem;
  }
  return std::nullopt;
}

}  // namespace

Json DefaultValue(const Setting& setting) { return Json::parse(setting.default_json); }

bool IsDefault(const Setting& setting, const Json& value) {
  return !setting.required && DefaultValue(setting) == value;
}

bool IsInList(std::string_view list_json, const Json& value) {
  const Json list = Json::parse(list_json);
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::optional<std::string> CheckValue(const Setting& setting, Json* value) {
  if (setting.per_group && value->is_array()) return CheckNumbers(setting, value);
  if (value->is_null() && DistinguishesNull(setting)) return std::nullopt;
  if (!HasType(*value, setting.type)) return WrongType(*value, setting.type);
  if (setting.type == ValueType::kInt && value->is_number_float()) {
    *value = static_cast<std::int64_t>(value->get<double>());
  }
  if (setting.type == ValueType::kFloat) *value = value->get<double>();
  if (setting.type == ValueType::kString) return CheckChoices(setting, value);
  return value->is_number() ? CheckRange(setting, *value) : std::nullopt;
}

std::string ShortDump(const Json& value) {
  constexpr std::size_t kShown = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

std::string ListAlternatives(std::string_view list_json) {
  const Json list = Json::parse(list_json);
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += i + 1 == list.size() ? " or " : ", ";
    text += list[i].dump();
  }
  return text;
}

}  // namespace ds::config
