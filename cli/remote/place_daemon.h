#pragma once

// PlaceDaemon: puts dsrund on a host under a name made of its content, so that it is sent once and
// every version has a place of its own.
//
// It goes to $HOME/.cache/dsrun/dsrund-HASH; where the home has no room or cannot be written, to
// the private folder /tmp/dsrun-UID. The bytes travel on a command's standard input, which fills
// the connection (and reaches a wrapper's own file system) where libssh 0.10 waits for an answer
// after every piece of an SFTP file, to a temporary name, are compared there, and are renamed: a
// file under the final name is whole.

#include <string>

#include "cli/remote/daemon_binary.h"
#include "cli/remote/remote_shell.h"

namespace ds::cli {

struct PlacedDaemon {
  std::string path;
  std::string notice;  // that it is not where it should be, and why; "" when it is
};

// `unique` makes the temporary name nobody else's.
HostResult<PlacedDaemon> PlaceDaemon(RemoteShell* shell, const DaemonBinary& binary,
                                     const std::string& unique);

}  // namespace ds::cli
