#pragma once

// CheckStandsFor asks whether a job still has what its recipe is named for. A recipe lists its
// features in `stands_for`; a job that takes the recipe and has lost one of them, by the user's
// flags or config, contradicts itself and is refused.

#include <nlohmann/json.hpp>
#include <string>

#include "cli/train/recipe.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/status.h"

namespace ds::cli {

// OK when `names` is a list of known features.
Status CheckFeatureNames(const nlohmann::ordered_json& names);

// OK when the job has all features of the recipe. Looks for the model's files.
Status CheckStandsFor(const Recipe& recipe, const TrainInputs& inputs);

}  // namespace ds::cli
