#include "cli/remote/remote_shell.h"

#include <algorithm>

namespace ds::cli {

std::string ShellQuote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string ScriptCommand(const std::vector<std::string>& wrapper, const std::string& script,
                          const std::vector<std::string>& arguments) {
  std::string inner = "exec ";
  for (const std::string& word : wrapper) inner += ShellQuote(word) + " ";
  std::string line = script;
  std::replace(line.begin(), line.end(), '\n', ' ');
  inner += "/bin/sh -c " + ShellQuote(line) + " dsrun \"$SSH_CONNECTION\"";
  for (const std::string& argument : arguments) inner += " " + ShellQuote(argument);
  return "exec /bin/sh -c " + ShellQuote(inner);
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

HostResult<CommandResult> RemoteShell::Run(const Script& script) {
  return connection_->Run({.line = ScriptCommand(wrapper_, script.text, script.arguments),
                           .input = script.input,
                           .one_line_is_enough = script.one_line_is_enough});
}

}  // namespace ds::cli
