#pragma once

// MarkBackwardEntry marks the point in the autograd graph at which the backward pass enters a unit.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace ds::zero {

// Returns whether a mark on these tensors would be in the graph: at least one must need a gradient.
bool CanMarkBackwardEntry(const std::vector<at::Tensor>& tensors);

// Returns the same values (sharing memory) as tensors of the graph. `on_reached` runs in the
// backward pass before every operation that produced them. Tensors without gradient are returned
// unchanged. `on_reached` must stay callable while the graph lives.
//
// When it runs, everything recorded after these tensors has been computed, because the autograd
// engine always takes the ready operation that was recorded last.
std::vector<at::Tensor> MarkBackwardEntry(std::vector<at::Tensor> tensors,
                                          const std::function<void()>& on_reached);

}  // namespace ds::zero
