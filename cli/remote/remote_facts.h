#pragma once

// RemoteFacts: what is asked of a host before anything is put there, in one command.

#include <string>

#include "cli/remote/daemon_binary.h"
#include "cli/remote/remote_shell.h"

namespace ds::cli {

struct RemoteFacts {
  std::string address;  // the host's own, on which it took our connection
  std::string machine;  // "Linux x86_64"
  std::string dsrank;   // "" when the host has none
  std::string folder;   // where a file of this dsrund's name is already; "" when nowhere
};

// Finds out as well whether the login shell keeps quiet and whether the host can run the binary at
// all.
HostResult<RemoteFacts> AskForFacts(RemoteShell* shell, const DaemonBinary& binary);

// Pure: what the script printed, as facts. Used by AskForFacts.
HostResult<RemoteFacts> ParseFacts(const std::string& printed);

}  // namespace ds::cli
