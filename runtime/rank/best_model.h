#pragma once

// The model of the best evaluation: whether its checkpoint is there, and loading it at the end of a
// run (--load_best_model_at_end).

#include <filesystem>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loop/best_evaluation.h"

namespace ds::rank {

// kFailedPrecondition when the best evaluation so far has no checkpoint in the folder
// `checkpoints`: the run before did not keep it.
Status CheckBestIsKept(const engine::BestEvaluation& best,
                       const std::filesystem::path& checkpoints);

// Loads the engine from the checkpoint of the best evaluation; does nothing when there was none or
// it is of the engine's own step. Collective.
Status LoadBest(const engine::BestEvaluation& best, const std::filesystem::path& checkpoints,
                Engine& engine);

// Names the best evaluation of a run that keeps its checkpoint, in the folder `checkpoints`, where
// a run that has been resumed may not have kept it before.
std::string DescribeBest(const engine::BestEvaluation::Best& best,
                         const std::filesystem::path& checkpoints);

}  // namespace ds::rank
