#pragma once

// RemoteTarget: what the hostfile says about reaching a host. What it leaves open (port 0, empty
// texts) is decided by ~/.ssh/config, then by SSH's defaults.
//
// Pure but for a look at whether the identity file can be read.

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
  int port = 0;                        // 0 = as ~/.ssh/config says, else 22
  std::string identity;                // tried first
  std::vector<std::string> host_keys;  // fingerprints, of which it must show one; none = as known
  std::vector<std::string> wrapper;    // of exec=: what runs commands where the ranks live
};

// `default_port` (0 = none) counts where the entry names no port. kInvalidArgument for an identity
// file that is not there or a user named twice.
StatusOr<RemoteTarget> MakeRemoteTarget(const HostEntry& entry, int default_port);

// The user's home as SSH's files are looked for: $HOME, else what the user database says.
std::string FindHomeDirectory();

}  // namespace ds::cli
