#pragma once

// PlaceDaemon: puts dsrund on a host under a name made of its content, so that it is sent once and
// every version has a place of its own.
//
// It goes to $HOME/.cache/dsrun/dsrund-HASH. Where the home has no room or cannot be written, a new
// folder with a name nobody can know, in a place that all users share, takes it for one start. The
// bytes travel on a command's standard input, which fills the connection (and reaches a wrapper's
// own file system) where libssh 0.10 waits for an answer after every piece of an SFTP file, to a
// temporary name, are compared there, and get the final name: a file under that name is whole, and
// one that is right already stays, since another host may be running it. Each start looks
// again (remote_daemon.cc).

#include <string>

#include "cli/remote/daemon_binary.h"
#include "cli/remote/remote_shell.h"

namespace ds::cli {

// Defines "sum FILE" for a script, which prints the file's SHA-256 and whatever else behind a
// blank. openssl's is the quicker one: 25 ms for dsrund where coreutils' takes 140.
inline constexpr char kSumFunction[] =
    R"sh(sum() { openssl dgst -sha256 -r <"$1" 2>/dev/null || sha256sum <"$1"; };)sh";

struct PlacedDaemon {
  std::string folder;
  bool once = false;   // the folder is for one start, which removes it
  std::string notice;  // that it is not where it should be, and why; "" when it is
};

// `unique` makes the temporary name nobody else's.
HostResult<PlacedDaemon> PlaceDaemon(RemoteShell* shell, const DaemonBinary& binary,
                                     const std::string& unique);

}  // namespace ds::cli
