#pragma once

// OwnerMark: text that names a process for good, so that what it has made can be told from what
// others have made, and later whether it has ended: the boot it lived in, its pid, and when it was
// started. Pids are used again; the three together are not.
//
// Threads: plain functions.

#include <string>
#include <string_view>

namespace ds::daemon {

// Names this process: "BOOT PID START"; "" where /proc does not say.
std::string OwnMark();

// The process that `mark` names lived in this boot and has ended. False for everything that is not
// a mark: what nobody can prove to be ours is not.
bool OwnerIsGone(std::string_view mark);

}  // namespace ds::daemon
