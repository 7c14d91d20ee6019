#pragma once

// The states of a model that each rank of `dsrun train` holds at ZeRO's four stages, in bf16 with
// Adam: nothing is offloaded. Pure.

#include <string>
#include <vector>

#include "runtime/config/memory_estimate.h"
#include "runtime/config/model_state.h"

namespace ds::plan {

// By stage.
std::vector<config::ModelStateBytes> CountRankBytes(const config::MemoryQuestion& question);

// A blank line, a title and a line for each stage.
std::string DrawRankTable(const std::vector<config::ModelStateBytes>& stages);

}  // namespace ds::plan
