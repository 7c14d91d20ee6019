#pragma once

// The arguments of transformers' Trainer, its example scripts and TRL's SFTTrainer: names, defaults
// and the effect of each in dsrun. Names and defaults are those of transformers 5.24 and TRL 1.16
// (goldens) and, where a version has dropped one, of the last version that had it.

#include <nlohmann/json.hpp>
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
  std::string_view sft_default_json = "";  // of TRL's SFTConfig, where it differs
};

// Null for an unknown one.
const ArgumentRow* FindArgument(std::string_view name);
// The default of a TrainingArguments, or of an SFTConfig.
nlohmann::ordered_json DefaultOf(const ArgumentRow& row, bool of_sft);
// True of the names that tell an SFTConfig from a TrainingArguments.
bool IsOfSft(std::string_view name);
// True of the names of TRL's trainers that do not learn the next token: DPO, KTO, GRPO and others.
bool IsOfOtherTrainer(std::string_view name);
std::vector<std::string> ArgumentNames();

}  // namespace ds::cli
