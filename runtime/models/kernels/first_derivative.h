#pragma once

// CheckIsFirstDerivative: for backward passes that compute by loops and products of our own. What
// they return has no graph, so that a derivative of it would silently lack their part.

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace ds::models {

// Refuses a backward pass with create_graph, which is the one that records. `what` is the part of a
// model, as a user knows it.
inline void CheckIsFirstDerivative(const char* what) {
  TORCH_CHECK(!c10::GradMode::is_enabled(), "the backward pass of ", what,
              " has no derivative of its own: a second derivative through it (create_graph) is "
              "not built; compute it from LibTorch's own operators");
}

}  // namespace ds::models
