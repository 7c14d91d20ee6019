#pragma once

// Strangers: TCP connections to a daemon from processes that have no part in its job.

#include <string_view>
#include <vector>

#include "runtime/base/unique_fd.h"

namespace ds::procs {

// The first byte of a TLS handshake. The kernel passes a connection on when it has data.
inline constexpr std::string_view kFirstByte = "\x16";

// Connects to the port of an address of this host. Invalid if that is refused.
UniqueFd ConnectTo(const char* address, int port);
// Connects to 127.0.0.1 so many times, and sends `first` on each connection.
std::vector<UniqueFd> ConnectStrangers(int count, int port, std::string_view first);

// Waits until the other side hangs up, reading what it says; false after a minute.
bool AwaitHangUp(const UniqueFd& fd);

}  // namespace ds::procs
