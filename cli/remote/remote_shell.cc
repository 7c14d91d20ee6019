#include "cli/remote/remote_shell.h"

#include <algorithm>

#include "runtime/base/shell_quote.h"

namespace ds::cli {

std::string MakeScriptCommand(const std::vector<std::string>& wrapper, const std::string& script,
                              const std::vector<std::string>& arguments) {
  std::string inner = "exec ";
  for (const std::string& word : wrapper) inner += ShellQuote(word) + " ";
  std::string line = script;
  std::replace(line.begin(), line.end(), '\n', ' ');
  inner += "/bin/sh -c " + ShellQuote(line) + " dsrun \"$SSH_CONNECTION\"";
  for (const std::string& argument : arguments) inner += " " + ShellQuote(argument);
  return "exec /bin/sh -c " + ShellQuote(inner);
}

std::string TakeLastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

HostResult<CommandResult> RemoteShell::Run(const Script& script) {
  return connection_->Run({.line = MakeScriptCommand(wrapper_, script.text, script.arguments),
                           .input = script.input,
                           .one_line_is_enough = script.one_line_is_enough});
}

}  // namespace ds::cli
