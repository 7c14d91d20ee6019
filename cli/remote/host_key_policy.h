#pragma once

// HostKeyPolicy: what ~/.ssh/config and /etc/ssh/ssh_config say about host keys, which libssh does
// not honour by itself.
//
// Pure but for the home directory and the user's name.

#include <string>
#include <vector>

#include "cli/remote/host_failure.h"

namespace ds::cli {

// Words as they stand in the configuration; "" = it does not say.
struct HostKeyWords {
  std::string strict;         // StrictHostKeyChecking
  std::string hash;           // HashKnownHosts
  std::string alias;          // HostKeyAlias
  std::string users_files;    // UserKnownHostsFile
  std::string systems_files;  // GlobalKnownHostsFile
  std::string revoked;        // RevokedHostKeys
};

// Stands for the tokens in the words.
struct HostKeyNames {
  std::string name;  // %n, as it was asked for
  std::string host;  // %h, as dialled
  int port = 22;     // %p
  std::string user;  // %r
};

struct HostKeyPolicy {
  // "StrictHostKeyChecking yes" or "ask", since nobody is asked here.
  bool refuses_unknown_hosts = false;
  bool hashes_names = false;             // of hosts that are remembered
  std::string alias;                     // under which the host is known; "" = its own name
  std::vector<std::string> users_files;  // what is new is remembered in the first
  std::vector<std::string> systems_files;
  std::string revoked_keys;  // a file; "" = none
};

// Fails for what cannot be honoured.
HostResult<HostKeyPolicy> MakeHostKeyPolicy(const HostKeyWords& words, const HostKeyNames& names);

}  // namespace ds::cli
