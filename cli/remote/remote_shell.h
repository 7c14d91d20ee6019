#pragma once

// RemoteShell runs small sh scripts on a host, inside the wrapper of the hostfile's exec= key if
// there is one, with any login shell of the user. The login shell and the wrapper may print text of
// their own first: each script begins with a line that nobody can guess, and its output is the text
// after that line.
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

// Returns a word that nobody can guess: "dsrun-" and 32 digits.
std::string MakeMarker();

// Returns the last line of a script's output; "" if there is none.
std::string TakeLastLine(std::string text);

class RemoteShell {
 public:
  RemoteShell(RemoteConnection* connection, std::vector<std::string> wrapper)
      : connection_(connection), wrapper_(std::move(wrapper)), marker_(MakeMarker()) {}

  struct Script {
    std::string text;
    std::vector<std::string> arguments;
    std::string_view input;           // its standard input
    bool one_line_is_enough = false;  // returns after its first line, without the status
  };
  struct Result {
    bool begun = false;  // the script has begun; otherwise `out` is what was printed instead
    int status = -1;     // as in CommandResult
    std::string out;
    std::string err;
  };
  // Returns the result of the script. A HostFailure is a failure of the connection.
  HostResult<Result> Run(const Script& script);
  // Returns the first line that was printed before a script began; "" = none.
  const std::string& noise() const { return noise_; }

  RemoteConnection& connection() const { return *connection_; }
  bool wrapped() const { return !wrapper_.empty(); }
  const std::vector<std::string>& wrapper() const { return wrapper_; }

 private:
  RemoteConnection* const connection_;
  const std::vector<std::string> wrapper_;
  const std::string marker_;
  std::string noise_;
};

}  // namespace ds::cli
