#pragma once

// The arguments of transformers' Trainer, its example scripts and TRL's SFTTrainer: names, defaults
// and the effect of each in dsrun. Names and defaults come from transformers 5.24 and TRL 1.16
// (goldens), or for removed arguments from the last version with them.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

enum class ArgumentEffect {
  kMapped,   // training_arguments.cc translates it
  kNone,     // does not affect training results
  kNear,     // small effect; `text` describes dsrun's behaviour
  kChanges,  // affects training results; only its default can be translated
};

struct ArgumentRow {
  std::string_view name;
  std::string_view default_json;
  ArgumentEffect effect = ArgumentEffect::kNone;
  std::string_view text;
  std::string_view sft_default_json = "";  // of TRL's SFTConfig, if different
};

// Returns null for an unknown argument.
const ArgumentRow* FindArgument(std::string_view name);
// Returns the default in TrainingArguments, or in SFTConfig.
nlohmann::ordered_json DefaultOf(const ArgumentRow& row, bool of_sft);
// True for names that only SFTConfig has, not TrainingArguments.
bool IsOfSft(std::string_view name);
// True for names of TRL trainers with another objective than next-token prediction: DPO, KTO, GRPO
// and others.
bool IsOfOtherTrainer(std::string_view name);
std::vector<std::string> ArgumentNames();

}  // namespace ds::cli
