#pragma once

// Parts of ShardedModel (sharded_model.h): checks that ranks have the same model and that
// parameters do not share memory, and the mark by which a backward pass enters a block.

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

// Ranks check here that they are about to shard the same model, before any byte is moved. NCCL does
// not compare the arguments of collectives: parameters of equal size in a different order on one
// rank would be mixed up silently.

// Returns a hash of the properties that the ranks' models must share: the order of the units, and
// for each parameter its name (except for experts, which differ between ranks), global shape,
// dtype, how it is trained, and how its gradient is sent.
std::uint64_t HashModel(const std::vector<ParameterUnit>& units);

// Returns OK if all ranks have the same model. Otherwise the error names the first unit or
// parameter in which a rank differs from rank 0; it is the same on all ranks. If the models are
// equal, only one number per rank is exchanged. Collective, over the control group of `all`.
Status CheckSameModel(const std::vector<ParameterUnit>& units, comm::Communicator& all);

// FindSharedMemory finds parameters that share memory, fully or partly. Each parameter gets its own
// range of a flat buffer, so shared parameters would become two.

// Returns the names of two parameters that have an element in common, even if they begin at
// different addresses; the first one in the model comes first. Views of one storage that do not
// overlap are distinct, and so are parameters without data.
std::optional<std::pair<std::string, std::string>> FindSharedMemory(
    const std::vector<ParameterUnit>& units);

// Marks the point in the autograd graph at which the backward pass enters a unit.

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
