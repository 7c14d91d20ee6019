#include "runtime/engine/engine_parts.h"

namespace ds::engine {

bool Engine::is_gradient_accumulation_boundary() const { return parts_->at_boundary(); }

Status Engine::set_gradient_accumulation_boundary(bool is_boundary) {
  if (!parts_->config.managed_gradient_accumulation) {
    return FailedPreconditionError(
        "with managed_gradient_accumulation false the boundary is where step() is called");
  }
  parts_->boundary = is_boundary;
  return OkStatus();
}

Engine::NoSync::NoSync(bool* inside) : inside_(inside) { *inside = true; }

StatusOr<Engine::NoSync> Engine::no_sync() {
  const int stage = parts_->config.zero_optimization.stage;
  if (stage >= 2) {
    return FailedPreconditionError("no_sync() does not go with ZeRO stage " +
                                   std::to_string(stage) +
                                   ", whose gradients are sharded: every backward reduces them");
  }
  if (parts_->inside_no_sync) {
    return FailedPreconditionError("no_sync() inside the scope of another one");
  }
  return NoSync(&parts_->inside_no_sync);
}

}  // namespace ds::engine
