#pragma once

// The arguments that transformers' Trainer, its example scripts and TRL's trainers take, with what
// each means for a training here. Names and defaults are those of transformers 5.24 (a golden) and,
// where it has dropped one, of the last version that had it.

#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

enum class ArgumentEffect {
  kMapped,   // training_arguments.cc translates it
  kNone,     // has no part in what is learnt
  kNear,     // changes little; `text` says what dsrun does
  kChanges,  // changes what is learnt and has no translation but at its default
};

struct ArgumentRow {
  std::string_view name;
  std::string_view default_json;
  ArgumentEffect effect = ArgumentEffect::kNone;
  std::string_view text;
};

// Null for an unknown one.
const ArgumentRow* FindArgument(std::string_view name);
std::vector<std::string> ArgumentNames();

}  // namespace ds::cli
