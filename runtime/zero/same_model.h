#pragma once

// Ranks find out here whether they are about to cut one model, before they move a byte of it: where
// nobody compares what a collective is about, as over NCCL, parameters of equal size that stand in
// another order on one rank would be mixed, and nothing would say so.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Hashes what the ranks' models have in common: the units in order, and of each parameter its name
// (unless it is an expert's, of which ranks have different ones), global shape, dtype, how it is
// trained and how its gradient travels.
std::uint64_t HashModel(const std::vector<ParameterUnit>& units);

// OK where all ranks have the same model; else names the first unit or parameter in which a rank's
// differs from that of rank 0, the same on all ranks. Takes one number of each rank where they are
// the same. Collective, over the control group of `all`.
Status CheckSameModel(const std::vector<ParameterUnit>& units, comm::Communicator& all);

}  // namespace ds::zero
