#include "cli/remote/remote_facts.h"

#include <sstream>
#include <vector>

namespace ds::cli {
namespace {

constexpr char kFirstLine[] = "dsrun-facts";
constexpr char kLastLine[] = "dsrun-end";

// $1 the connection, $2 the name of the file, $3 dsrank's path here. A dsrank is looked for where
// DSRUN_RANK says, at the same place as here, and in PATH.
constexpr char kScript[] = R"sh(
echo dsrun-facts; echo "$1"; echo "$(uname -sm)";
r="$DSRUN_RANK"; [ -x "$r" ] || r="$3"; [ -x "$r" ] || r="$(command -v dsrank)"; echo "$r";
d="$HOME/.cache/dsrun"; [ -x "$d/$2" ] || d=; echo "$d"; echo dsrun-end)sh";

std::string FirstLineOf(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The third word of "CLIENT PORT SERVER PORT".
std::string ServerOf(const std::string& connection) {
  std::istringstream words(connection);
  std::string client;
  std::string port;
  std::string server;
  words >> client >> port >> server;
  return server;
}

}  // namespace

HostResult<RemoteFacts> ParseFacts(const std::string& printed) {
  if (!printed.starts_with(std::string(kFirstLine) + "\n")) {
    return HostFailure{
        .kind = FailureKind::kShellNoise,
        .message = "the login shell prints without being asked: '" + FirstLineOf(printed) + "'",
        .hint =
            "programs read what it prints: in ~/.bashrc and the like, print only in interactive "
            "shells: [[ $- == *i* ]] || return"};
  }
  const std::vector<std::string> lines = LinesOf(printed);
  if (lines.size() != 6 || lines[5] != kLastLine) {
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "the host's shell did not answer as expected: '" + printed + "'",
                       .hint = "does 'ssh HOST /bin/sh -c true' work?"};
  }
  return RemoteFacts{
      .address = ServerOf(lines[1]), .machine = lines[2], .dsrank = lines[3], .folder = lines[4]};
}

HostResult<RemoteFacts> AskForFacts(RemoteShell* shell, const DaemonBinary& binary) {
  const RemoteShell::Script script{.text = kScript,
                                   .arguments = {binary.file_name(), binary.dsrank}};
  const HostResult<CommandResult> answer = shell->Run(script);
  if (!answer.ok()) return answer.failure();
  const CommandResult& result = *answer;
  if (result.out.empty()) {
    std::string runs = "/bin/sh";
    for (auto word = shell->wrapper().rbegin(); word != shell->wrapper().rend(); ++word) {
      runs = *word + " " + runs;
    }
    return HostFailure{.kind = FailureKind::kStart,
                       .message = "'" + runs + "' ended with status " +
                                  std::to_string(result.status) +
                                  (result.err.empty() ? "" : ": " + FirstLineOf(result.err)),
                       .hint = shell->wrapped() ? "is what exec= names running on the host?"
                                                : "does 'ssh HOST /bin/sh -c true' work?"};
  }
  if (result.status != 0 && result.out.find(kFirstLine) == std::string::npos) {
    return HostFailure{
        .kind = FailureKind::kStart,
        .message = "the login shell ran no command and said: '" + FirstLineOf(result.out) + "'",
        .hint = "may this user work there? user= in the hostfile names another"};
  }
  HostResult<RemoteFacts> facts = ParseFacts(result.out);
  if (!facts.ok()) return facts;
  if (facts->machine != binary.machine) {
    return HostFailure{
        .kind = FailureKind::kStart,
        .message = "the host is a " + facts->machine + ", this dsrund is for " + binary.machine,
        .hint = "all hosts of a job must be of one kind"};
  }
  // A wrapper may keep its variables to itself; then the address that was dialled must do.
  if (facts->address.empty()) facts->address = shell->connection().peer_address();
  return facts;
}

}  // namespace ds::cli
