#pragma once

// Setting: one ds_config key as the registry knows it.
//
// settings.json is the only place where keys are declared; generate_settings.cc turns it into a
// constant table of these at build time, and refuses to when an entry makes no sense.

#include <string_view>

namespace ds::config {

enum class ValueType { kBool, kInt, kFloat, kString, kList, kObject, kAny };

enum class SettingState {
  kSection,   // an object that only holds other keys
  kWorks,     // honoured
  kAccepted,  // any valid value is fine and has no effect here; `reason` says why
  kRefused,   // only the default is fine: the feature is not built, `reason` names it
  kRenamed,   // a deprecated name: its value goes to `renamed_to`
};

// The meaning of the value "auto".
enum class AutoRule {
  kRefused,   // nothing here can resolve it
  kDefault,   // the default
  kDerived,   // as if the key were absent: it follows from other keys
  kResolved,  // from flags, model and machine (auto_values.h)
  kValue,     // a value like any other
};

struct Setting {
  // Dotted path. "<g>" stands for any name, "[]" behind a name for each element of a list.
  std::string_view key;
  ValueType type;
  SettingState state;
  AutoRule auto_rule;
  bool required;     // has no default: whoever uses the feature must give it
  bool ignore_case;  // of a string with choices
  bool enables;      // a section whose mere presence switches a feature on
  bool per_group;    // a number, or a list with one for each parameter group
  double minimum, maximum;
  // JSON texts; choices and harmless are lists, "[]" when there are none.
  std::string_view default_json;
  std::string_view choices_json;   // the values that exist
  std::string_view harmless_json;  // values of a refused key that ask for nothing
  std::string_view carries_json;   // what a renamed key's values became; {}: they stayed the same
  std::string_view switch_key;     // the key that switches the feature of this one on, or ""
  std::string_view renamed_to;     // of a renamed key, else ""
  std::string_view reason;         // why a key is without effect or refused, else ""
  std::string_view doc;            // what it means
  std::string_view cost;           // what changing it costs; "" unless it works
};

}  // namespace ds::config
