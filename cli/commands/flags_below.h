#pragma once

// FlagsBelow: what the user's own flags of `train` are laid over, a recipe or arguments of
// transformers' Trainer.
//
// Over Trainer's arguments a flag is the argument of the same name: the file is translated with
// it, so that what follows from an argument (autocast from bf16, the kwargs that a schedule takes)
// follows from the flag.

#include <string>
#include <vector>

#include "cli/train/recipe.h"
#include "cli/train/train_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct FlagsBelow {
  std::string name;  // "recipe lora"; "" = nothing
  Recipe recipe;     // flags and ds_config; of Trainer's arguments without a feature
  std::vector<std::string> launch;
  std::vector<std::string> notices;  // on arguments that do not map wholly
  std::vector<std::string> told;     // as Translation::told
  bool has_deepspeed = false;        // as Translation::has_deepspeed
};

// Those of the file `path` with the flags `given` by the user. The error lists what does not map.
StatusOr<FlagsBelow> ReadTrainerArguments(const std::string& path, const TrainFlags& given);

// Requires flags that were read from the words of `below` with the user's own after them. Lays them
// over the ds_config of `below`.
void LayOver(const FlagsBelow& below, TrainFlags* flags);

// Trainer refuses a ds_config with a number that is not the one of its arguments. Requires the
// flags `given` by the user, and `all` of them, with those below.
Status CheckAgreement(const FlagsBelow& below, const TrainFlags& given, const TrainFlags& all,
                      int world_size);

}  // namespace ds::cli
