#pragma once

// Small agreements between ranks: one common status, gathered numbers and texts. They run on the
// control group of `world`. Collective: all ranks of `world` call them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace ds::comm {

// Returns OK if every rank's status is OK. Otherwise returns the error of the lowest failing rank,
// the same on all ranks. In a world of several ranks the message is prefixed with "rank N: ".
Status AgreeOnStatus(const Status& mine, Communicator& world);

// Returns every rank's number, in rank order.
std::vector<std::int64_t> GatherNumber(std::int64_t mine, Communicator& world);

std::int64_t SumOverRanks(std::int64_t mine, Communicator& world);

// Returns all ranks' lists: entry [r] is rank r's `mine`, bit for bit. All ranks pass lists of
// equal length.
std::vector<std::vector<double>> GatherNumbers(const std::vector<double>& mine,
                                               Communicator& world);

// Returns the root's text on every rank.
std::string BroadcastText(std::string_view text, int root, Communicator& world);

// Returns every rank's text in rank order on rank 0, and an empty list on the other ranks.
std::vector<std::string> GatherTexts(std::string_view mine, Communicator& world);

}  // namespace ds::comm
