// Model state that waits in host memory between steps.

#include "runtime/engine/engine_parts.h"

namespace ds::engine {

using zero::StateKind;

void EngineParts::ReloadStates() {
  if (!states_away) return;
  optimizer->MoveBack();
  states_away = false;
}

Status Engine::offload_states(const std::vector<StateKind>& include) {
  DS_RETURN_IF_ERROR(parts_->step.CheckBetweenSteps("states are offloaded"));
  const std::vector<StateKind> all = {StateKind::kOptimStates, StateKind::kHpParams,
                                      StateKind::kLpParams, StateKind::kLpGrads,
                                      StateKind::kContiguousGradBuffer};
  parts_->states_away = true;
  for (const StateKind kind : include.empty() ? all : include) parts_->optimizer->MoveToHost(kind);
  return OkStatus();
}

void Engine::reload_states() { parts_->ReloadStates(); }

Status Engine::empty_partition_cache() {
  DS_RETURN_IF_ERROR(parts_->step.CheckBetweenSteps("buffers are freed"));
  parts_->sharded->FreeBuffers();
  return OkStatus();
}

}  // namespace ds::engine
