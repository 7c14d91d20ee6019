// Model state that waits in host memory between steps.

#include <string>

#include "runtime/engine/engine_parts.h"

namespace ds::engine {

using zero::StateKind;

Status EngineParts::CheckBetweenSteps(const char* what) const {
  if (step.micro_batches == 0) return OkStatus();
  return FailedPreconditionError(std::string(what) + " between steps only; this one has seen " +
                                 std::to_string(step.micro_batches) + " micro-batches");
}

void EngineParts::ReloadStates() {
  if (!states_away) return;
  optimizer->MoveBack();
  states_away = false;
}

Status Engine::offload_states(const std::vector<StateKind>& include) {
  DS_RETURN_IF_ERROR(parts_->CheckBetweenSteps("states are offloaded"));
  const std::vector<StateKind> all = {StateKind::kOptimStates, StateKind::kHpParams,
                                      StateKind::kLpParams, StateKind::kLpGrads,
                                      StateKind::kContiguousGradBuffer};
  parts_->states_away = true;
  for (const StateKind kind : include.empty() ? all : include) parts_->optimizer->MoveToHost(kind);
  return OkStatus();
}

void Engine::reload_states() { parts_->ReloadStates(); }

Status Engine::empty_partition_cache() {
  DS_RETURN_IF_ERROR(parts_->CheckBetweenSteps("buffers are freed"));
  parts_->sharded->FreeBuffers();
  return OkStatus();
}

}  // namespace ds::engine
