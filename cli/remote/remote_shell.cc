#include "cli/remote/remote_shell.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/check.h"
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

std::string MakeMarker() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, 16> bytes{};
  DS_CHECK_MSG(::RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "no random bytes");
  std::string marker = "dsrun-";
  for (const unsigned char byte : bytes) {
    marker += kDigits[byte >> 4];
    marker += kDigits[byte & 15];
  }
  return marker;
}

HostResult<RemoteShell::Result> RemoteShell::Run(const Script& script) {
  const std::string line = marker_ + "\n";
  HostResult<CommandResult> answer =
      connection_->Run({.line = MakeScriptCommand(wrapper_, "echo " + marker_ + "; " + script.text,
                                                  script.arguments),
                        .input = script.input,
                        .marker = line,
                        .one_line_is_enough = script.one_line_is_enough});
  if (!answer.ok()) return answer.failure();
  Result result{.status = answer->status, .out = std::move(answer->out), .err = answer->err};
  const std::size_t at = result.out.find(line);
  if (at == std::string::npos) return result;
  result.begun = true;
  if (noise_.empty()) noise_ = result.out.substr(0, std::min(at, result.out.find('\n')));
  result.out.erase(0, at + line.size());
  return result;
}

}  // namespace ds::cli
