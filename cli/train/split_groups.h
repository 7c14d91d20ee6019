#pragma once

// DescribeSplitGroups looks for ranks that talk in every layer and do not lie on one host. Pure;
// safe from any thread.

#include <string>
#include <vector>

#include "cli/plan/launch_plan.h"
#include "runtime/config/ds_config.h"

namespace ds::cli {

// A sentence for tensor ranks and one for sequence ranks, where a group of them is cut by the end
// of a host: which ranks, on which hosts, and what would keep them together. Ranks are numbered
// host by host, tensor ranks being neighbours, and sequence ranks around them (topology::Degrees).
// Requires degrees that divide the number of ranks.
std::vector<std::string> DescribeSplitGroups(const WorldPlan& world,
                                             const config::ParallelConfig& degrees);

}  // namespace ds::cli
