#pragma once

// Setting describes one ds_config key in the registry.
//
// settings.json is the only place where keys are declared. generate_settings.cc turns it into a
// constant table of settings at build time, and fails on an inconsistent entry.

#include <string_view>

namespace ds::config {

enum class ValueType { kBool, kInt, kFloat, kString, kList, kObject, kAny };

enum class SettingState {
  kSection,   // an object that only holds other keys
  kWorks,     // honoured
  kAccepted,  // any valid value has no effect here; `reason` says why
  kRefused,   // only the default is allowed: the feature is not built, `reason` names it
  kRenamed,   // a deprecated name: its value is moved to `renamed_to`
};

// The meaning of the value "auto".
enum class AutoRule {
  kRefused,   // cannot be resolved here
  kDefault,   // the default
  kDerived,   // as if the key were absent: derived from other keys
  kResolved,  // from flags, model and machine (auto_values.h)
  kValue,     // a value like any other
};

struct Setting {
  // Dotted path. "<g>" stands for any name, "[]" after a name for each element of a list.
  std::string_view key;
  ValueType type;
  SettingState state;
  AutoRule auto_rule;
  bool required;     // has no default: a user of the feature must give it
  bool ignore_case;  // of a string with choices
  bool enables;      // a section that switches a feature on by being present
  bool per_group;    // a number, or a list with one for each parameter group
  double minimum, maximum;
  // JSON texts; choices and harmless are lists, "[]" when there are none.
  std::string_view default_json;
  std::string_view choices_json;   // the values that exist
  std::string_view harmless_json;  // values of a refused key that request nothing
  std::string_view carries_json;   // new values of a renamed key's values; {}: they stay the same
  std::string_view switch_key;     // the key that switches on this key's feature, or ""
  std::string_view renamed_to;     // for a renamed key, else ""
  std::string_view reason;         // why a key has no effect or is refused, else ""
  std::string_view doc;            // its meaning
  std::string_view cost;           // the cost of changing it; "" unless it works
};

}  // namespace ds::config
