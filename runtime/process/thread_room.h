#pragma once

// CheckThreadRoom looks whether there is room for threads, for code that cannot do without those
// that it starts. gRPC is such code: where it does not get one of its own it waits for that one's
// work for ever, or aborts.

#include <string>

#include "runtime/base/status.h"

namespace ds {

// Says where to look, of what fork and its kin mean by EAGAIN: kResourceExhausted.
Status NoRoomError(const std::string& what);

// Starts so many threads beside those of this process and ends them again. kResourceExhausted says
// of how many the machine has room, and by what that is limited. Who has looked starts his own at
// once: nothing is kept for him.
//
// Threads: safe from any.
Status CheckThreadRoom(int count);

}  // namespace ds
