#pragma once

// Recipe: a tested, named set of flags plus a ds_config, for `dsrun train --recipe NAME`. It is an
// Hjson file in configs/recipes:
//
//   {"about": "a line for the list", "stands_for": ["weights", ...],
//    "train": {"seq_len": 2048, ...}, "ds_config": {...}}
//
// `train` maps flag names to values, except settings of ds_config keys, which belong to
// `ds_config`. The user's settings override the recipe. A flag overrides the recipe's flag and the
// one ds_config key that it fills. A section of the user's ds_config overrides the recipe's section
// (runtime/config/file/base_config.h). A job that loses the feature named by its recipe is rejected
// (CheckRecipeApplies). Pure except reading the files.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/train/share_folder.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct Recipe {
  std::string name;
  std::string about;
  std::vector<std::string> stands_for;  // features (CheckRecipeApplies)
  nlohmann::ordered_json flags;
  nlohmann::ordered_json ds_config;
};

// Accepts the name of a shipped recipe or the path of a user's file, which ends in ".json".
// kNotFound suggests the recipe with the most similar name.
StatusOr<Recipe> FindRecipe(const std::string& name, const ShareFolder& share);

// Lists the shipped recipes, one per line.
StatusOr<std::string> ListRecipes(const ShareFolder& share);

// Returns the flags of the recipe as command line words. Omits flags in `given` (names without
// dashes) and flags that a given one replaces: `epochs` replaces `steps`.
std::vector<std::string> WordsBelow(const Recipe& recipe, const std::vector<std::string>& given);

// Checks that the job still has all features in the recipe's `stands_for`. Fails if the user's
// flags or config removed one, because the job then contradicts its recipe. Looks for the model's
// files.
Status CheckRecipeApplies(const Recipe& recipe, const TrainInputs& inputs);

}  // namespace ds::cli
