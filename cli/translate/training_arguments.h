#pragma once

// TranslateTrainingArguments: the arguments of transformers' Trainer as flags of `train` and a
// ds_config. Arguments that are not given have Trainer's defaults, which are not dsrun's: 3 epochs,
// a linear decay, no warm-up, no weight decay on norms and biases. Pure.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/translate/translation.h"

namespace ds::cli {

// Holds what the arguments refer to and do not say.
struct TrainerContext {
  // The optimizer steps of the training, to whose end rates fall; absent: as max_steps says, else
  // not known.
  std::optional<std::int64_t> steps;
  // The ds_config that `deepspeed` names, where it is a path.
  nlohmann::ordered_json deepspeed;
};

// Requires that `arguments` is an object, as TrainingArguments.to_json_string() writes it or as
// HfArgumentParser reads it.
Translation TranslateTrainingArguments(const nlohmann::ordered_json& arguments,
                                       const TrainerContext& context);

// The path that `deepspeed` names; "" when it names none.
std::string DeepspeedPath(const nlohmann::ordered_json& arguments);

}  // namespace ds::cli
