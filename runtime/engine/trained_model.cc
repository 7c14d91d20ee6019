#include "runtime/engine/trained_model.h"

#include <string>

namespace ds::engine {

Status TrainedModel::ReloadStates() {
  DS_RETURN_IF_ERROR(CheckNotGathered());
  if (states_away) optimizer->MoveBack();
  states_away = false;
  return OkStatus();
}

Status TrainedModel::CheckNotGathered() const {
  if (!gathered) return OkStatus();
  return FailedPreconditionError(
      "the engine is asked for more within WithGatheredParameters, whose parameters that would "
      "take away: do it after the body");
}

Status TrainedModel::CheckWeightsAreAlike() const {
  if (!optimizer->has_local_moves()) return OkStatus();
  return FailedPreconditionError(
      std::string(optimizer->optimizer_name()) +
      " has moved each rank's parameters on their own, and what is written into them would leave "
      "them different for good: write behind an update in which the ranks exchange what they have "
      "done (local_step_scaler, local_step_clipper)");
}

}  // namespace ds::engine
