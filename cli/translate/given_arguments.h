#pragma once

// GivenArguments reads Trainer's arguments by name and type, with the defaults of Trainer or of
// TRL's SFTTrainer, and puts what cannot be read among the missing ones.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cli/translate/translation.h"

namespace ds::cli {

class GivenArguments {
 public:
  // Holds views of both.
  GivenArguments(const nlohmann::ordered_json& given, Translation* translation);

  // True when a name of SFTConfig is given and none of TRL's other trainers: defaults are
  // SFTConfig's then.
  bool of_sft() const { return of_sft_; }
  bool IsGiven(std::string_view name) const { return given_.contains(name); }

  // True when it is there and says something: no null, false, "" or empty list or object.
  bool Has(std::string_view name) const;
  // Returns what is given, else the default. Requires that the table has `name`.
  nlohmann::ordered_json Get(std::string_view name) const;

  // Nothing when it is of another type, which is remarked.
  std::optional<double> Number(std::string_view name);
  std::optional<std::int64_t> Whole(std::string_view name);
  std::string Text(std::string_view name);  // "" for null
  bool Flag(std::string_view name);

  void Miss(std::string_view name, std::string text);

 private:
  const nlohmann::ordered_json& given_;
  Translation& translation_;
  bool of_sft_ = false;
};

// True of null, false, "", [] and {}.
bool SaysNothing(const nlohmann::ordered_json& value);

}  // namespace ds::cli
