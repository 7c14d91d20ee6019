#pragma once

// Ranks settle on one status here, and tell each other what only they know, over the control group
// of `world`. Collective.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace ds::comm {

// OK when every rank's status is; else the failing rank's with the lowest number, the same on all
// ranks. Where there are several, "rank N: " stands in front of the message.
Status AgreeOnStatus(const Status& mine, Communicator& world);

// Every rank's number, in rank order.
std::vector<std::int64_t> GatherNumber(std::int64_t mine, Communicator& world);

std::int64_t SumOverRanks(std::int64_t mine, Communicator& world);

// Gathers: entry [r] is rank r's `mine`, bit for bit. Equal lengths on all ranks.
std::vector<std::vector<double>> GatherNumbers(const std::vector<double>& mine,
                                               Communicator& world);

// Every rank gets the root's text.
std::string BroadcastText(std::string_view text, int root, Communicator& world);

// Rank 0 gets every rank's text in rank order; the others get nothing.
std::vector<std::string> GatherTexts(std::string_view mine, Communicator& world);

}  // namespace ds::comm
