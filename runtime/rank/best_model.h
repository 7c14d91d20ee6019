#pragma once

// The model of the best evaluation: checks whether its checkpoint exists, and loads it at the end
// of a run (--load_best_model_at_end).

#include <filesystem>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loop/best_evaluation.h"

namespace ds::rank {

// Returns kFailedPrecondition if the best evaluation so far has no checkpoint in the folder
// `checkpoints`, because the previous run did not keep it.
Status CheckBestIsRetained(const engine::BestEvaluation& best,
                           const std::filesystem::path& checkpoints);

// Loads the engine from the checkpoint of the best evaluation. Does nothing if there was no
// evaluation or if it belongs to the engine's current step. Collective: all ranks call it.
Status LoadBest(const engine::BestEvaluation& best, const std::filesystem::path& checkpoints,
                Engine& engine);

// Describes the best evaluation of a run and whether its checkpoint is in the folder `checkpoints`.
// A resumed run may lack it.
std::string DescribeBest(const engine::BestEvaluation::Best& best,
                         const std::filesystem::path& checkpoints);

}  // namespace ds::rank
