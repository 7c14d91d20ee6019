#pragma once

// RemoteTarget is the hostfile's description of how to reach a host. ~/.ssh/config, then SSH's
// defaults, supply missing values (port 0, empty texts).
//
// Pure, except for the home directory.

#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/hostfile.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct RemoteTarget {
  int node_rank = 0;
  std::string name;  // as spelt in the hostfile
  std::string host;  // without "user@"
  std::string user;
  std::string address;                 // dialled instead of the host's name
  int port = 0;                        // 0 = from ~/.ssh/config, else 22
  std::string identity;                // tried first
  std::vector<std::string> host_keys;  // accepted fingerprints; empty = as in known_hosts
  std::vector<std::string> wrapper;    // of exec=: runs commands where the ranks run
};

// `default_port` (0 = none) applies if the entry names no port. kInvalidArgument for a
// user named twice.
StatusOr<RemoteTarget> MakeRemoteTarget(const HostEntry& entry, int default_port);

// Returns the user's home folder for SSH's files: $HOME, else from the user database.
std::string FindHomeDirectory();

}  // namespace ds::cli
