#pragma once

// Recipe: flags and a ds_config that are known to go well together, by a name: `dsrun train
// --recipe NAME`. It is a file of configs/recipes, in Hjson:
//
//   {"about": "a line for the list", "stands_for": ["weights", ...],
//    "train": {"seq_len": 2048, ...}, "ds_config": {...}}
//
// `train` has flags of `train` by their names; those that fill keys of the ds_config stand there.
// Whatever the user says goes before the recipe: a flag before the recipe's flag and before the one
// key of its ds_config that it fills, a section of the user's ds_config before the recipe's section
// (runtime/config/file/base_config.h). What would leave nothing of the thing that the recipe is
// named for is refused (CheckStandsFor). Pure but for the reading of the files.

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
  std::vector<std::string> stands_for;  // features (CheckStandsFor)
  nlohmann::ordered_json flags;
  nlohmann::ordered_json ds_config;
};

// Takes the name of a shipped recipe, or the path of a user's own file, which ends in ".json".
// NotFound names the recipe that comes near.
StatusOr<Recipe> FindRecipe(const std::string& name, const ShareFolder& share);

// Lists the shipped recipes, a line each.
StatusOr<std::string> ListRecipes(const ShareFolder& share);

// The flags of the recipe as words of a command line, but for those that are `given` (by names
// without dashes) and those that a given one takes the place of: `epochs` of `steps`.
std::vector<std::string> WordsBelow(const Recipe& recipe, const std::vector<std::string>& given);

// OK when the job still has what its recipe is named for, all features of `stands_for`: a job that
// takes the recipe and has lost one of them, by the user's flags or config, contradicts itself.
// Looks for the model's files.
Status CheckStandsFor(const Recipe& recipe, const TrainInputs& inputs);

}  // namespace ds::cli
