#pragma once

// Translation: what a description of a training that another program reads comes to in dsrun. The
// command line, the ds_config, and for every argument a remark that says what became of it.
//
// Threads: a value.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

enum class Mapping {
  kWhole,    // means the same here
  kNearly,   // means nearly the same; the remark says what differs
  kLeftOut,  // has no part in what is learnt
  kMissing,  // changes what is learnt, and has no translation
};

struct Remark {
  Mapping mapping = Mapping::kWhole;
  std::string name;  // of the argument, as the other program calls it
  std::string value;
  std::string text;  // what it becomes, or why not and what to do
};

struct Translation {
  std::vector<std::string> launch;  // flags in front of the command
  // Flags of `train` by their names: a text, a number, true, or a list of texts.
  nlohmann::ordered_json flags = nlohmann::ordered_json::object();
  nlohmann::ordered_json ds_config = nlohmann::ordered_json::object();
  std::vector<std::string> program;  // in place of `train`, with its arguments
  std::vector<Remark> remarks;
  // Arguments whose whole meaning is in `ds_config`. A flag of the same name was an argument of
  // this translation, and is cleared after it (LayOver in cli/commands/flags_below.h).
  std::vector<std::string> told;
  bool has_deepspeed = false;  // the ds_config is one that Trainer holds against its arguments

  void Add(Mapping mapping, std::string_view name, const nlohmann::ordered_json& value,
           std::string text);
  // Sets a flag of `train` and says so.
  void SetFlag(std::string_view name, const nlohmann::ordered_json& value, const std::string& flag,
               const nlohmann::ordered_json& flag_value);
  // Sets a value of the ds_config, by a pointer such as "/zero_optimization/stage", and says so.
  void SetKey(std::string_view name, const nlohmann::ordered_json& value,
              const std::string& pointer, const nlohmann::ordered_json& key_value);

  // True when nothing that changes what is learnt is missing.
  bool is_whole() const;
};

// The words of the command line. Of `train`, --model and --data are there, as MODEL and DATA where
// nothing says them, and `ds_config` names the file of the config ("" = none).
std::vector<std::string> CommandWords(const Translation& translation, const std::string& ds_config);

// The missing ones as one message, each by its name.
std::string DescribeMissing(const Translation& translation);

}  // namespace ds::cli
