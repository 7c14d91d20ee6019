#include "cli/remote/proxy_command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "runtime/process/pipe.h"
#include "runtime/process/spawn_session.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

std::string Shell() {
  const char* shell = std::getenv("SHELL");
  return shell != nullptr && *shell != '\0' ? shell : "/bin/sh";
}

}  // namespace

std::string ExpandProxyCommand(std::string_view command, const ProxyTokens& tokens) {
  std::string text;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char next = i + 1 < command.size() ? command[i + 1] : '\0';
    if (command[i] != '%' || std::string_view("hprn%").find(next) == std::string_view::npos) {
      text += command[i];
      continue;
    }
    if (next == 'h') text += tokens.host;
    if (next == 'p') text += std::to_string(tokens.port);
    if (next == 'r') text += tokens.user;
    if (next == 'n') text += tokens.name;
    if (next == '%') text += '%';
    ++i;
  }
  return text;
}

StatusOr<std::unique_ptr<ProxyCommand>> ProxyCommand::Start(const std::string& command) {
  DS_ASSIGN_OR_RETURN(SocketPair pair, MakeSocketPair());
  const int theirs = pair.theirs.get();  // closed here on return, so that the program's end shows
  if (::fcntl(pair.ours.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  // For standard error, which is read only after a failure. With O_NONBLOCK, a write to the
  // full pipe fails instead of blocking the program.
  DS_ASSIGN_OR_RETURN(Pipe words, MakePipe(O_NONBLOCK));
  std::unique_ptr<ProxyCommand> proxy(
      new ProxyCommand(std::move(pair.ours), std::move(words.read)));
  const InheritedFd inherited[] = {
      {theirs, STDIN_FILENO}, {theirs, STDOUT_FILENO}, {words.write.get(), STDERR_FILENO}};
  const std::string shell = Shell();
  // exec replaces the shell, as with OpenSSH, so that pid_ is the program's.
  DS_ASSIGN_OR_RETURN(proxy->pid_,
                      SpawnInNewSession(shell, {shell, "-c", "exec " + command}, inherited));
  return proxy;
}

std::string ProxyCommand::ReadLastWords() {
  std::string text(std::size_t{64} << 10, '\0');  // the default capacity of a pipe
  const ssize_t got = ::read(words_.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text.substr(text.find_last_of("\r\n") + 1);
}

ProxyCommand::~ProxyCommand() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);  // the program has no state to save
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ds::cli
