#pragma once

// StartError explains to the user why a rank could not be started.
//
// Pure, except that it inspects the file that could not be executed. Thread-safe.

#include "daemon/ranks/rank_child.h"
#include "daemon/ranks/rank_command.h"
#include "runtime/base/status.h"

namespace ds::daemon {

// Describes the failure of a child between clone and execve. Requires that one of its steps failed.
Status MakeStartError(const RankChild& child, const RankCommand& command);

}  // namespace ds::daemon
