#pragma once

// Translation is the dsrun equivalent of another program's training description: the command line,
// the ds_config, and a remark about the result for every argument.
//
// A plain value.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

enum class Mapping {
  kExact,    // has the same meaning here
  kNearly,   // has nearly the same meaning; the remark describes the difference
  kLeftOut,  // does not affect training results
  kMissing,  // affects training results and has no translation
};

struct Remark {
  Mapping mapping = Mapping::kExact;
  std::string name;  // of the argument in the other program
  std::string value;
  std::string text;  // the translation, or the reason why there is none and the alternative
};

struct Translation {
  std::vector<std::string> launch;  // flags before the command
  // Flags of `train` by name: a text, a number, true, or a list of texts.
  nlohmann::ordered_json flags = nlohmann::ordered_json::object();
  nlohmann::ordered_json ds_config = nlohmann::ordered_json::object();
  std::vector<std::string> program;  // replaces `train`; with its arguments
  std::vector<Remark> remarks;
  // Arguments fully expressed by `ds_config`. A flag of the same name was an input of this
  // translation and is cleared afterwards (LayOver in cli/commands/flags_below.h).
  std::vector<std::string> expressed;
  bool has_deepspeed = false;  // Trainer checks this ds_config against its arguments

  void Add(Mapping mapping, std::string_view name, const nlohmann::ordered_json& value,
           std::string text);
  // Sets a flag of `train` and adds a remark.
  void SetFlag(std::string_view name, const nlohmann::ordered_json& value, const std::string& flag,
               const nlohmann::ordered_json& flag_value);
  // Sets a value of the ds_config, by a pointer such as "/zero_optimization/stage", and adds a
  // remark.
  void SetKey(std::string_view name, const nlohmann::ordered_json& value,
              const std::string& pointer, const nlohmann::ordered_json& key_value);

  // True if no argument that affects training results is missing.
  bool is_complete() const;
};

// Returns the words of the command line. For `train` they include --model and --data, with the
// placeholders MODEL and DATA if unknown. `ds_config` is the name of the config file ("" = none).
std::vector<std::string> CommandWords(const Translation& translation, const std::string& ds_config);

// Returns the missing arguments in one message, each by name.
std::string DescribeMissing(const Translation& translation);

}  // namespace ds::cli
