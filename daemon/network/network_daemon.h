#pragma once

// The daemon of another host: started over SSH as `dsrund --listen ADDRESS --job ID`, it reads a
// ListenRequest from standard input, answers with a ListenResponse on standard output, each one
// line (proto/message_line.h), and goes on in the background, so that the SSH connection may close.
// From then on its lease decides how long it lives (supervisor.h). An answer with an error comes
// with status 1.
//
// Credentials never leave its memory: no core file of it is written, and no other process of the
// user may look into it.
//
// Threads: call from main, before there are others.

#include <chrono>
#include <string>

#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Returns in a child process. The process that was started waits until the child writes a byte to
// the descriptor it gets here and then exits with 0, or with 1 when the child ends instead.
StatusOr<UniqueFd> ContinueInBackground();

// Reads, answers, lets the process that was started go, and serves until the daemon's end, which
// ends the process; returns the exit status when it could not start. `options` lacks only what
// comes over standard input, and the folder.
int ServeNetwork(const std::string& address, SupervisorOptions options, UniqueFd starter);

// Sets the file's times to now, and again after each `interval` while the loop runs. A cache drops
// versions of dsrund that nobody has used for a month, and a running one must stay: on a file
// system that hosts share, the pages of a removed program cannot be read again.
void KeepFresh(EventLoop* loop, const std::string& path, std::chrono::nanoseconds interval);

}  // namespace ds::daemon
