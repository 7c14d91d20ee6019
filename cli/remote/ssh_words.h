#pragma once

// SshWords read what OpenSSH's own client says: its settings for a host (`ssh -G`), and why it
// failed.
//
// It ends with 255 whatever was the matter, so that its English words, which no locale translates,
// are all there is to tell one failure from another. What is not recognised is shown as it is.
//
// Pure.

#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/host_failure.h"

namespace ds::cli {

struct SshSettings {
  std::string host_name;                 // what it dials
  std::string control_path;              // "" = none
  bool has_proxy = false;                // ProxyCommand or ProxyJump
  std::string strictness;                // StrictHostKeyChecking, as it may be here; "" = default
  std::vector<std::string> known_hosts;  // the user's and the system's files
};

SshSettings ParseSshSettings(const std::string& printed);

// The warning in the client's standard error, for the user; "" for none.
std::string WarningOf(const std::string& words);

// `host` is what the user would type behind ssh, `words` the client's standard error.
HostFailure ExplainSsh(const std::string& host, const std::string& words);

// Puts `host` in the place of each HOST of `hint`, so that the commands in it can be pasted: a name
// that means something to a shell, or an option to ssh, stands quoted, and the 'marks' around such
// a command are gone.
std::string HintFor(std::string_view hint, const std::string& host);

}  // namespace ds::cli
