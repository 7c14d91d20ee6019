#pragma once

// Marks the place in the autograd graph where the backward pass enters a unit.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace ds::zero {

// Tells whether a mark on these tensors would be in the graph: one of them has a gradient.
bool CanMarkBackwardEntry(const std::vector<at::Tensor>& tensors);

// Returns the same values (sharing their memory) as tensors of the graph such that `on_reached`
// runs in the backward pass before anything that produced them. Tensors without gradient are
// returned as they are. `on_reached` must stay callable as long as the graph lives.
//
// By the time it runs, everything that was recorded after these tensors has been computed: the
// autograd engine always takes the ready operation that was recorded last.
std::vector<at::Tensor> MarkBackwardEntry(std::vector<at::Tensor> tensors,
                                          const std::function<void()>& on_reached);

}  // namespace ds::zero
