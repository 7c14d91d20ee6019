#pragma once

// HostKeyPolicy holds the settings of ssh_config about host keys, which libssh does not honour by
// itself.
//
// Pure, except that it reads the home directory and the user's name.

#include <string>
#include <vector>

#include "cli/remote/host_failure.h"
#include "cli/remote/ssh_settings.h"

namespace ds::cli {

// The values of the tokens in names of files.
struct SshTokens {
  std::string name;     // %n, as given by the user
  std::string host;     // %h, as dialled
  int port = 22;        // %p
  std::string user;     // %r
  std::string alias{};  // %k; "" = the name
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
HostResult<HostKeyPolicy> MakeHostKeyPolicy(const SshSettings& settings, const SshTokens& tokens);

// Returns the absolute name of a file that `keyword` names. Fails for a token that is not
// supported.
HostResult<std::string> ExpandSshFile(const std::string& keyword, const std::string& word,
                                      const SshTokens& tokens);

}  // namespace ds::cli
