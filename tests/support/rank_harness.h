#pragma once

// Ranks as threads: runs one function per rank of a local world and reports the first failure.
//
//     RunRanks(4, [](comm::Communicator& comm) { ... EXPECT_EQ(...); });
//
// The function runs in one thread per rank. When a rank throws, it leaves the group, so that its
// peers fail instead of hanging; after all threads have ended, the exception that was thrown first
// is rethrown here. Do not use ASSERT_* inside (it only returns from the lambda): use EXPECT_*, or
// throw.

#include <functional>

#include "runtime/comm/communicator.h"

namespace ds::testing {

void RunRanks(int world_size, const std::function<void(comm::Communicator&)>& body);

}  // namespace ds::testing
