#pragma once

// Ranks settle on one status here, and tell rank 0 what only they know. Collective.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace ds::checkpoint {

// OK when every rank's status is; else the failing rank's with the lowest number, the same on all
// ranks. Where there are several, "rank N: " stands in front of the message.
Status AgreeOnStatus(const Status& mine, comm::Communicator& world);

std::int64_t SumOverRanks(std::int64_t mine, comm::Communicator& world);

// Rank 0 gets every rank's text in rank order; the others get nothing.
std::vector<std::string> GatherTexts(std::string_view mine, comm::Communicator& world);

}  // namespace ds::checkpoint
