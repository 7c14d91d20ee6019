#pragma once

// Parsers for the output of OpenSSH's own client: its settings for a host (`ssh -G`), and its error
// messages.
//
// The client exits with 255 for every failure, so only its English messages, which no locale
// translates, distinguish them. Unknown messages are shown unchanged.
//
// Pure.

#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/host_failure.h"

namespace ds::cli {

struct SshSettings {
  std::string host_name;                 // the dialled name
  std::string control_path;              // "" = none
  bool has_proxy = false;                // ProxyCommand or ProxyJump
  std::string strictness;                // StrictHostKeyChecking as allowed here; "" = default
  std::vector<std::string> known_hosts;  // the user's and the system's files
};

SshSettings ParseSshSettings(const std::string& printed);

// Returns the warning in the client's standard error, for the user; "" = none.
std::string WarningOf(const std::string& words);

// `host` is the argument that the user would pass to ssh, `words` the client's standard error.
HostFailure ExplainSsh(const std::string& host, const std::string& words);

// Replaces each HOST in `hint` by `host`, so that the commands in it can be pasted. A name that is
// special to a shell, or looks like an option of ssh, is quoted, and the 'marks' around such a
// command are removed.
std::string HintFor(std::string_view hint, const std::string& host);

}  // namespace ds::cli
