#pragma once

// GivenArguments reads Trainer's arguments by name and type, with the defaults of Trainer or of
// TRL's SFTTrainer. Unreadable values are recorded as missing.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cli/translate/translation.h"

namespace ds::cli {

class GivenArguments {
 public:
  // Keeps references to both arguments, which must outlive this object.
  GivenArguments(const nlohmann::ordered_json& given, Translation* translation);

  // True if a name of SFTConfig is given and no name of TRL's other trainers. The defaults are then
  // SFTConfig's.
  bool of_sft() const { return of_sft_; }
  bool IsGiven(std::string_view name) const { return given_.contains(name); }

  // True if the argument is given with a value other than null, false, "", an empty list or an
  // empty object.
  bool Has(std::string_view name) const;
  // Returns the given value, else the default. The table must have `name`.
  nlohmann::ordered_json Get(std::string_view name) const;

  // Return no value, and record a remark, if the argument has another type.
  std::optional<double> Number(std::string_view name);
  std::optional<std::int64_t> Integer(std::string_view name);
  std::string Text(std::string_view name);  // "" for null
  bool Flag(std::string_view name);

  void Miss(std::string_view name, std::string text);

 private:
  const nlohmann::ordered_json& given_;
  Translation& translation_;
  bool of_sft_ = false;
};

// True for null, false, "", [] and {}.
bool IsUnset(const nlohmann::ordered_json& value);

}  // namespace ds::cli
