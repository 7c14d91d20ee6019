#pragma once

// start_error: why a launch started no ranks, in words for the user.
//
// Pure, except that it looks at the file that could not be executed. Safe from any thread.

#include "daemon/ranks/rank_child.h"
#include "daemon/ranks/rank_process.h"
#include "runtime/base/status.h"

namespace ds::daemon {

// Says what stopped a child between clone and execve. Requires: one of its steps has failed.
Status StartError(const RankChild& child, const RankCommand& command);

// An error of Launch as the controller gets it. UNAVAILABLE and DEADLINE_EXCEEDED are gRPC's words
// for a daemon that did not answer; a file system whose server is not reached has the same ones,
// and must not be taken for a lost daemon.
Status AsRefusal(const Status& error);

}  // namespace ds::daemon
