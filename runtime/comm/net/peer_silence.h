#pragma once

// Silence of a peer: nothing that is sent to its host is acknowledged. A peer that is merely late
// or stopped is not silent: its kernel answers for it, also while its window is full, which
// TCP_USER_TIMEOUT would count as silence.

#include <chrono>

namespace ds::comm {

// An error ends the connection when it is idle and the other host has not answered for so long.
void EndWhenSilent(int fd, std::chrono::seconds silence);

// Tells the same of a connection on which bytes are under way, for which the kernel would take a
// quarter of an hour. False for a socket that is not TCP's.
bool IsSilent(int fd, std::chrono::seconds silence);

}  // namespace ds::comm
