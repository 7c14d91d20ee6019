#pragma once

// StartError says in words for the user why a rank was not started.
//
// Pure, except that it looks at the file that could not be executed. Safe from any thread.

#include "daemon/ranks/rank_child.h"
#include "daemon/ranks/rank_command.h"
#include "runtime/base/status.h"

namespace ds::daemon {

// Says what stopped a child between clone and execve. Requires: one of its steps has failed.
Status MakeStartError(const RankChild& child, const RankCommand& command);

}  // namespace ds::daemon
