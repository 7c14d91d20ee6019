#include "runtime/rank/best_model.h"

#include <system_error>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/catalog.h"

namespace ds::rank {
namespace {

bool IsRetained(const engine::BestEvaluation::Best& best,
                const std::filesystem::path& checkpoints) {
  std::error_code error;
  return std::filesystem::exists(checkpoint::DirectoryOfStep(checkpoints, best.step), error);
}

}  // namespace

Status CheckBestIsRetained(const engine::BestEvaluation& best,
                           const std::filesystem::path& checkpoints) {
  if (!best.best() || IsRetained(*best.best(), checkpoints)) return OkStatus();
  return FailedPreconditionError(
      "--load_best_model_at_end: the best evaluation so far is of step " +
      std::to_string(best.best()->step) +
      ", which has no checkpoint, as the run did not use --save_best then: resume without the "
      "flag, or from a checkpoint before that step");
}

Status LoadBest(const engine::BestEvaluation& best, const std::filesystem::path& checkpoints,
                Engine& engine) {
  if (!best.best() || best.best()->step == engine.finished_steps()) return OkStatus();
  checkpoint::Stateful* const parts[] = {&engine.state()};
  const auto path = checkpoint::DirectoryOfStep(checkpoints, best.best()->step);
  return checkpoint::LoadCheckpoint(path, parts, engine.world())
      .WithContext("the checkpoint of the best evaluation");
}

std::string DescribeBest(const engine::BestEvaluation::Best& best,
                         const std::filesystem::path& checkpoints) {
  const std::string step = std::to_string(best.step);
  return "the best evaluation was at step " + step + ", loss " + std::to_string(best.loss) +
         (IsRetained(best, checkpoints)
              ? ": its checkpoint is step-" + step
              : ": it has no checkpoint, for the run did not keep the best one then");
}

}  // namespace ds::rank
