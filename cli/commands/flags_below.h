#pragma once

// FlagsBelow holds the settings that the user's flags of `train` override: a recipe, or arguments
// of transformers' Trainer.
//
// A flag replaces the Trainer argument of the same name before the file is translated. So settings
// derived from an argument (autocast from bf16, the kwargs of a schedule) are derived from the
// flag.

#include <string>
#include <vector>

#include "cli/train/recipe.h"
#include "cli/train/train_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct FlagsBelow {
  std::string name;  // "recipe lora"; "" = none
  Recipe recipe;     // flags and ds_config; no features for Trainer's arguments
  std::vector<std::string> launch;
  std::vector<std::string> notices;    // about arguments that do not map exactly
  std::vector<std::string> expressed;  // see Translation::expressed
  bool has_deepspeed = false;          // see Translation::has_deepspeed
};

// Reads the arguments in the file `path`, with the flags `given` by the user. The error lists
// arguments without a translation.
StatusOr<FlagsBelow> ReadTrainerArguments(const std::string& path, const TrainFlags& given);

// Merges `flags` over the ds_config of `below`. `flags` must be parsed from the words of `below`
// followed by the user's own.
void LayOver(const FlagsBelow& below, TrainFlags* flags);

// Rejects a ds_config with a number that differs from Trainer's argument, as Trainer does. `given`
// are the user's flags, `all` also include the flags of `below`.
Status CheckAgreement(const FlagsBelow& below, const TrainFlags& given, const TrainFlags& all,
                      int world_size);

}  // namespace ds::cli
