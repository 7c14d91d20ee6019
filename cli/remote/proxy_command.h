#pragma once

// ProxyCommand: the program that carries an SSH connection, as ssh_config's ProxyCommand names it;
// of a ProxyJump libssh makes one.
//
// libssh would start it with a copy of its own end of the connection and with the signals that
// dsrun blocks: a program that waits for the end of its input, as nc does, would then never end,
// and libssh waits for it. This one has a session of its own (Ctrl-C is dsrun's to handle, and
// nobody can be asked for a password), and its end is certain.
//
// Threads: one at a time.

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

struct ProxyTokens {
  std::string host;  // %h, the real one
  int port = 0;      // %p
  std::string user;  // %r
  std::string name;  // %n, as it was asked for
};

// ssh_config's tokens replaced, %% included; others stay as they are.
std::string ExpandProxyCommand(std::string_view command, const ProxyTokens& tokens);

class ProxyCommand {
 public:
  // Runs it with the user's shell. A program that does not exist shows as a connection that ends.
  static StatusOr<std::unique_ptr<ProxyCommand>> Start(const std::string& command);
  // Ends it with all that it has started in its session's process group.
  ~ProxyCommand();
  ProxyCommand(const ProxyCommand&) = delete;
  ProxyCommand& operator=(const ProxyCommand&) = delete;

  // Our end, non-blocking; once.
  UniqueFd TakeSocket() { return std::move(socket_); }

  // The last line it has written to its standard error; "" for none. Once.
  std::string ReadLastWords();

 private:
  ProxyCommand(UniqueFd socket, UniqueFd words)
      : socket_(std::move(socket)), words_(std::move(words)) {}

  UniqueFd socket_;
  UniqueFd words_;
  pid_t pid_ = -1;
};

}  // namespace ds::cli
