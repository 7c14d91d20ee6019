#pragma once

// RemoteShell: runs small sh scripts on a host, inside the wrapper of the hostfile's exec= key when
// there is one, whatever the user's login shell is.
//
// Threads and lifetimes: the session's.

#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/ssh_session.h"

namespace ds::cli {

// `text` as one word of a POSIX shell.
std::string ShellQuote(std::string_view text);

// The command line for a login shell that makes it execute /bin/sh with `script`, inside `wrapper`.
// In the script $1 is the connection as the host's sshd sees it, "CLIENT PORT SERVER PORT", and
// `arguments` follow from $2 on. For the sake of csh the script has no '!', and its line ends
// become blanks: write the semicolons.
std::string ScriptCommand(const std::vector<std::string>& wrapper, const std::string& script,
                          const std::vector<std::string>& arguments);

struct ScriptResult {
  int status = -1;  // -1: killed by a signal, or the server did not say
  std::string out;
  std::string err;
};

// The last line of what a script printed; empty where it printed nothing.
std::string LastLine(std::string text);

class RemoteShell {
 public:
  RemoteShell(SshSession* session, std::vector<std::string> wrapper)
      : session_(session), wrapper_(std::move(wrapper)) {}

  struct Script {
    std::string text;
    std::vector<std::string> arguments;
    std::string_view input;           // its standard input
    bool one_line_is_enough = false;  // returns when that has been printed, without the status
  };
  // Returns how the script ended; a failure is one of the connection.
  HostResult<ScriptResult> Run(const Script& script);

  SshSession& session() const { return *session_; }
  bool wrapped() const { return !wrapper_.empty(); }
  const std::vector<std::string>& wrapper() const { return wrapper_; }

 private:
  // False: the connection is broken.
  bool Send(ssh_channel channel, std::string_view input, ScriptResult* result);
  HostResult<ScriptResult> Talk(ssh_channel channel, const Script& script);

  SshSession* const session_;
  const std::vector<std::string> wrapper_;
};

}  // namespace ds::cli
