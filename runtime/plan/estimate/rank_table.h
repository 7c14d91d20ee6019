#pragma once

// These functions count and show the model states that each rank of `dsrun train` holds at ZeRO's
// four stages, in bf16 with Adam, without offloading. Pure.

#include <string>
#include <vector>

#include "runtime/config/memory_estimate.h"
#include "runtime/config/model_state.h"

namespace ds::plan {

// Indexed by stage.
std::vector<config::ModelStateBytes> CountRankBytes(const config::MemoryQuestion& question);

// Returns a blank line, a title and a line for each stage.
std::string DrawRankTable(const std::vector<config::ModelStateBytes>& stages);

}  // namespace ds::plan
