#pragma once

// Detection of a silent peer: its host acknowledges nothing that is sent. A peer that is merely
// late or stopped is not silent, because its kernel acknowledges for it. That also holds while its
// window is full, which TCP_USER_TIMEOUT would count as silence.

#include <chrono>

namespace ds::comm {

// Configures an idle connection to end with an error if the other host has not answered for
// `silence`.
void EndWhenSilent(int fd, std::chrono::seconds silence);

// Returns whether a connection with unacknowledged bytes is silent; the kernel alone would take a
// quarter of an hour to detect it. Returns false for a socket that is not TCP.
bool IsSilent(int fd, std::chrono::seconds silence);

}  // namespace ds::comm
