#pragma once

// CheckIsFirstDerivative: for backward passes that compute with our own loops and products. Their
// results have no graph, so a second derivative would silently miss their contribution.

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace ds::kernels {

// Throws c10::Error in a backward pass with create_graph, the only one that records a graph. `what`
// names the part of the model in the message.
inline void CheckIsFirstDerivative(const char* what) {
  TORCH_CHECK(!c10::GradMode::is_enabled(), "the backward pass of ", what,
              " has no derivative of its own: a second derivative through it (create_graph) is "
              "not built; compute it from LibTorch's own operators");
}

}  // namespace ds::kernels
