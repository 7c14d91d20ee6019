#pragma once

// RemoteShell runs small sh scripts on a host, inside the wrapper of the hostfile's exec= key if
// there is one, with any login shell of the user.
//
// Same threading and lifetime rules as the connection.

#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/remote_connection.h"

namespace ds::cli {

// Returns the command line for a login shell that makes it execute /bin/sh with `script`, inside
// `wrapper`. In the script $1 is the connection as the host's sshd sees it, "CLIENT PORT SERVER
// PORT", and `arguments` follow from $2 on. For csh, the script must not contain '!', and its
// newlines become blanks: write the semicolons.
std::string MakeScriptCommand(const std::vector<std::string>& wrapper, const std::string& script,
                              const std::vector<std::string>& arguments);

// Returns the last line of a script's output; "" if there is none.
std::string TakeLastLine(std::string text);

class RemoteShell {
 public:
  RemoteShell(RemoteConnection* connection, std::vector<std::string> wrapper)
      : connection_(connection), wrapper_(std::move(wrapper)) {}

  struct Script {
    std::string text;
    std::vector<std::string> arguments;
    std::string_view input;           // its standard input
    bool one_line_is_enough = false;  // returns after the first line, without the status
  };
  // Returns the result of the script. A HostFailure is a failure of the connection.
  HostResult<CommandResult> Run(const Script& script);

  RemoteConnection& connection() const { return *connection_; }
  bool wrapped() const { return !wrapper_.empty(); }
  const std::vector<std::string>& wrapper() const { return wrapper_; }

 private:
  RemoteConnection* const connection_;
  const std::vector<std::string> wrapper_;
};

}  // namespace ds::cli
