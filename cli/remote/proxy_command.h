#pragma once

// ProxyCommand is the program that carries an SSH connection, as named by ssh_config's
// ProxyCommand. libssh translates a ProxyJump to one.
//
// libssh would start it with a copy of libssh's end of the connection and with the signals that
// dsrun blocks. A program that waits for the end of its input, such as nc, would then never end,
// and libssh waits for it. This class starts it in a new session (dsrun handles Ctrl-C, and no
// program can ask for a password) and always ends it.
//
// Not thread-safe.

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

struct ProxyTokens {
  std::string host;  // %h, the resolved name
  int port = 0;      // %p
  std::string user;  // %r
  std::string name;  // %n, as given by the user
};

// Replaces ssh_config's tokens, including %%. Other tokens stay unchanged.
std::string ExpandProxyCommand(std::string_view command, const ProxyTokens& tokens);

class ProxyCommand {
 public:
  // Runs the command with the user's shell. If the program does not exist, the connection ends.
  static StatusOr<std::unique_ptr<ProxyCommand>> Start(const std::string& command);
  // Ends the program and its process group.
  ~ProxyCommand();
  ProxyCommand(const ProxyCommand&) = delete;
  ProxyCommand& operator=(const ProxyCommand&) = delete;

  // Returns this process's end, non-blocking. Call it once.
  UniqueFd TakeSocket() { return std::move(socket_); }

  // Returns the last line of its standard error; "" = none. Call it once.
  std::string ReadLastWords();

 private:
  ProxyCommand(UniqueFd socket, UniqueFd words)
      : socket_(std::move(socket)), words_(std::move(words)) {}

  UniqueFd socket_;
  UniqueFd words_;
  pid_t pid_ = -1;
};

}  // namespace ds::cli
