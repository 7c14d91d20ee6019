#include "runtime/engine/trained_model.h"

#include <string>

namespace ds::engine {

zero::UnitRange TrainedModel::UnitsOf(int chunk) const {
  if (blocks == nullptr) return {0, static_cast<int>(sharded->units().size())};
  const models::BlockRange range = blocks->chunk(chunk);
  return {range.first, range.end};
}

Status TrainedModel::ReloadStates() {
  DS_RETURN_IF_ERROR(CheckNotGathered());
  if (states_offloaded) optimizer->MoveBack();
  states_offloaded = false;
  return OkStatus();
}

Status TrainedModel::CheckNotGathered() const {
  if (!gathered) return OkStatus();
  return FailedPreconditionError(
      "the engine is called within GatheredParameters, which would release the gathered "
      "parameters: call it afterwards");
}

Status TrainedModel::CheckWeightsAreEqual() const {
  if (!optimizer->has_local_moves()) return OkStatus();
  return FailedPreconditionError(
      std::string(optimizer->optimizer_name()) +
      " has updated each rank's parameters locally, and writing into them would leave them "
      "different for good: write after an update that synchronizes the ranks (local_step_scaler, "
      "local_step_clipper)");
}

}  // namespace ds::engine
