#pragma once

// The socket of a daemon of this machine, in its private folder. The agent that starts the daemon
// is connected by a socket pair; one that takes over the job connects there. Only this user may
// enter the folder, and the kernel names the process at the other end.

namespace dsrun::v1 {

inline constexpr char kLocalSocket[] = "daemon.sock";

}  // namespace dsrun::v1
