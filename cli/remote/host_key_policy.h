#pragma once

// HostKeyPolicy holds the settings of ~/.ssh/config and /etc/ssh/ssh_config about host keys, which
// libssh does not honour by itself.
//
// Pure, except that it reads the home directory and the user's name.

#include <string>
#include <vector>

#include "cli/remote/host_failure.h"

namespace ds::cli {

// Values as written in the configuration; "" = not set.
struct HostKeyWords {
  std::string strict;         // StrictHostKeyChecking
  std::string hash;           // HashKnownHosts
  std::string alias;          // HostKeyAlias
  std::string users_files;    // UserKnownHostsFile
  std::string systems_files;  // GlobalKnownHostsFile
  std::string revoked;        // RevokedHostKeys
};

// The values of the tokens in HostKeyWords.
struct HostKeyNames {
  std::string name;  // %n, as given by the user
  std::string host;  // %h, as dialled
  int port = 22;     // %p
  std::string user;  // %r
};

struct HostKeyPolicy {
  // For "StrictHostKeyChecking yes" or "ask", because nothing asks the user here.
  bool refuses_unknown_hosts = false;
  bool hashes_names = false;  // of hosts that are added
  std::string known_name;     // of the host in known_hosts, without a port
  int known_port = 22;
  std::vector<std::string> users_files;  // new keys are added to the first file
  std::vector<std::string> systems_files;
  std::string revoked_keys;  // a file; "" = none
};

// Fails for settings that cannot be honoured.
HostResult<HostKeyPolicy> MakeHostKeyPolicy(const HostKeyWords& words, const HostKeyNames& names);

}  // namespace ds::cli
