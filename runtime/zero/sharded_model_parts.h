#pragma once

// ShardedModel (sharded_model.h) stands on these: ranks that hold one model, memory that several of
// them share, and the place where a backward pass enters a block.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Ranks find out here whether they are about to cut one model, before they move a byte of it: where
// nobody compares what a collective is about, as over NCCL, parameters of equal size that stand in
// another order on one rank would be mixed, and nothing would say so.

// Hashes what the ranks' models have in common: the units in order, and of each parameter its name
// (unless it is an expert's, of which ranks have different ones), global shape, dtype, how it is
// trained and how its gradient travels.
std::uint64_t HashModel(const std::vector<ParameterUnit>& units);

// OK where all ranks have the same model; else names the first unit or parameter in which a rank's
// differs from that of rank 0, the same on all ranks. Takes one number of each rank where they are
// the same. Collective, over the control group of `all`.
Status CheckSameModel(const std::vector<ParameterUnit>& units, comm::Communicator& all);

// FindSharedMemory looks for parameters that are, in whole or in part, the same memory: each gets a
// place of its own in a flat buffer, and what was one would become two.

// The names of two parameters that have an element in common, wherever each of them begins, the one
// that the model has first in front. Views of one storage that have none are two, as are parameters
// without data.
std::optional<std::pair<std::string, std::string>> FindSharedMemory(
    const std::vector<ParameterUnit>& units);

// Marks the place in the autograd graph where the backward pass enters a unit.

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
