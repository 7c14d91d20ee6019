#pragma once

// RemoteShell: runs small sh scripts on a host, inside the wrapper of the hostfile's exec= key when
// there is one, whatever the user's login shell is.
//
// Threads and lifetimes: the connection's.

#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/remote_connection.h"

namespace ds::cli {

// The command line for a login shell that makes it execute /bin/sh with `script`, inside `wrapper`.
// In the script $1 is the connection as the host's sshd sees it, "CLIENT PORT SERVER PORT", and
// `arguments` follow from $2 on. For the sake of csh the script has no '!', and its line ends
// become blanks: write the semicolons.
std::string MakeScriptCommand(const std::vector<std::string>& wrapper, const std::string& script,
                              const std::vector<std::string>& arguments);

// The last line of what a script printed; empty where it printed nothing.
std::string TakeLastLine(std::string text);

class RemoteShell {
 public:
  RemoteShell(RemoteConnection* connection, std::vector<std::string> wrapper)
      : connection_(connection), wrapper_(std::move(wrapper)) {}

  struct Script {
    std::string text;
    std::vector<std::string> arguments;
    std::string_view input;           // its standard input
    bool one_line_is_enough = false;  // returns when that has been printed, without the status
  };
  // Returns how the script ended; a failure is one of the connection.
  HostResult<CommandResult> Run(const Script& script);

  RemoteConnection& connection() const { return *connection_; }
  bool wrapped() const { return !wrapper_.empty(); }
  const std::vector<std::string>& wrapper() const { return wrapper_; }

 private:
  RemoteConnection* const connection_;
  const std::vector<std::string> wrapper_;
};

}  // namespace ds::cli
