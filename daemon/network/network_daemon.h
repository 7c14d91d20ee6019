#pragma once

// The daemon of another host, started over SSH as `dsrund --listen ADDRESS --job ID`. It reads a
// ListenRequest from standard input and writes a ListenResponse to standard output, one line each
// (proto/message_line.h). Then it continues in the background, so that the SSH connection may
// close. From then on its lease limits its lifetime (supervisor.h). A response with an error comes
// with exit status 1.
//
// Credentials never leave its memory: it writes no core file, and no other process of the user may
// inspect it.
//
// Call these functions from main, before other threads exist.

#include <chrono>
#include <string>

#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// The exit status of a daemon that has ended without being released: its lease is over, its
// controller is gone, or it received a signal.
inline constexpr int kEndedUnreleased = 75;

// Forks and returns in the child. The parent waits until the child writes a byte to the returned
// descriptor and exits with 0, or with 1 if the child ends before.
StatusOr<UniqueFd> ContinueInBackground();

// Reads the request, answers, lets the parent process exit, and serves until the daemon ends, which
// ends the process. Returns the exit status if it could not start. `options` must be complete
// except for the folder and the settings that arrive on standard input.
struct DaemonStreams {
  UniqueFd starter;   // of ContinueInBackground
  UniqueFd messages;  // takes the place of standard error; invalid = /dev/null does
};
int ServeNetwork(const std::string& address, SupervisorOptions options, DaemonStreams streams);

// Sets the file's times to now, and again after each `interval` while the loop runs. A cache
// deletes versions of dsrund unused for a month, and must keep a running one. On a shared file
// system the pages of a deleted program cannot be read again.
void KeepFresh(EventLoop* loop, const std::string& path, std::chrono::nanoseconds interval);

}  // namespace ds::daemon
