#pragma once

// CheckSameModel: ranks check that they are about to shard the same model, before any byte is
// moved. NCCL does not compare the arguments of collectives: parameters of equal size in a
// different order on one rank would be mixed up silently.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Returns a hash of the properties that the ranks' models must share: the order of the units, and
// for each parameter its name (except for experts, which differ between ranks), global shape,
// dtype, how it is trained, and how its gradient is sent.
std::uint64_t HashModel(const std::vector<ParameterUnit>& units);

// Returns OK if all ranks have the same model. Otherwise the error names the first unit or
// parameter in which a rank differs from rank 0; it is the same on all ranks. If the models are
// equal, only one number per rank is exchanged. Collective, over the control group of `all`.
Status CheckSameModel(const std::vector<ParameterUnit>& units, comm::Communicator& all);

}  // namespace ds::zero
