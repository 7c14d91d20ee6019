#include "cli/remote/ssh_words.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "cli/remote/remote_shell.h"
#include "runtime/base/printable.h"
#include "runtime/base/shell_quote.h"

namespace ds::cli {
namespace {

struct Known {
  std::string_view words;
  FailureKind kind;
  std::string_view hint;
  bool transient = false;
};

constexpr std::string_view kReachHint = "is the host up and in this network? try 'ssh HOST'";
constexpr std::string_view kKeyHint =
    "this may be a man-in-the-middle attack. If the host was reinstalled: ssh-keygen -R HOST";
constexpr std::string_view kLoginHint =
    "'ssh HOST' must work without a question: ssh-add, kinit, a new certificate, or identity= and "
    "user= in the hostfile; or log in by hand over a ControlMaster, which is used then";

// ssh's name for the peer behind a proxy command. Messages with it mean that the command has ended;
// "closed", "reset" or a broken greeting only depend on the moment of its end.
constexpr std::string_view kThroughProxy = "UNKNOWN port 65535";

// The first entry that matches counts, so specific messages precede general ones.
constexpr Known kKnown[] = {
    {"ssh: not found", FailureKind::kSsh,
     "--launcher ssh-client needs OpenSSH's client on this machine"},
    {"Bad configuration option", FailureKind::kSsh, "look at ~/.ssh/config; try 'ssh -G HOST'"},
    {"Bad owner or permissions on", FailureKind::kSsh, "chmod 600 it; ssh reads no other"},
    {"hostname contains invalid characters", FailureKind::kName,
     "is the name spelt right? give another address by address= in the hostfile"},
    {"Could not resolve hostname", FailureKind::kName,
     "is the name spelt right? give another address by address= in the hostfile"},
    {"Connection refused", FailureKind::kRefused,
     "is sshd running there? give another port by port= in the hostfile", true},
    {"timed out", FailureKind::kTimeout, kReachHint, true},
    {"No route to host", FailureKind::kUnreachable, kReachHint},
    {"Network is unreachable", FailureKind::kUnreachable, kReachHint},
    {"is marked as revoked", FailureKind::kHostKey,
     "whoever has that key is not to be trusted; the host needs a new one"},
    {"REVOKED HOST KEY", FailureKind::kHostKey,
     "whoever has that key is not to be trusted; the host needs a new one"},
    {"revoked by file", FailureKind::kHostKey,
     "whoever has that key is not to be trusted; the host needs a new one"},
    {"Offending ", FailureKind::kHostKey, kKeyHint},
    {"host key is known for", FailureKind::kHostKey,
     "connect once with 'ssh HOST', or name its key by hostkey= in the hostfile"},
    {"Host key verification failed", FailureKind::kHostKey,
     "try 'ssh HOST', or name its key by hostkey= in the hostfile"},
    {"Permission denied (", FailureKind::kAuthentication, kLoginHint},
    {"Too many authentication failures", FailureKind::kAuthentication, kLoginHint},
    {"Unable to negotiate", FailureKind::kHandshake,
     "this ssh and the server have no algorithm in common: HostKeyAlgorithms, KexAlgorithms or "
     "Ciphers in ~/.ssh/config"},
    {kThroughProxy, FailureKind::kHandshake,
     "look at ProxyCommand or ProxyJump in ~/.ssh/config; it must work without a question", true},
    {"kex_exchange_identification", FailureKind::kHandshake,
     "is it an SSH server? one with too many connections hangs up as well (MaxStartups)", true},
    {"Connection closed by", FailureKind::kHandshake,
     "a server with too many connections hangs up (MaxStartups); try 'ssh HOST'", true},
    {"Connection reset by", FailureKind::kHandshake,
     "a server with too many connections hangs up (MaxStartups); try 'ssh HOST'", true},
};

std::string LineWith(const std::string& text, std::string_view words) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(words) != std::string::npos) return line;
  }
  return "";
}

// Returns the last line, without the carriage return at its end that ssh writes.
std::string LastLineOf(std::string text) {
  const std::size_t end = text.find_last_not_of("\r\n");
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text.substr(text.find_last_of("\r\n") + 1);
}

// Returns true if the name has no special meaning to a shell or to ssh.
bool IsPlain(std::string_view host) {
  constexpr std::string_view kPlain = "._:@%+,/[]-";
  return !host.empty() && host.front() != '-' && std::all_of(host.begin(), host.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  });
}

// Returns the last line that a proxy command printed before ssh's own message about its end, as the
// end of a sentence; "" if there is none.
std::string ProxyWords(const std::string& words) {
  const std::size_t named = words.find(kThroughProxy);
  if (named == std::string::npos) return "";
  const std::size_t line = words.find_last_of('\n', named) + 1;  // npos + 1 is 0
  const std::size_t before = std::min(line, words.find("kex_exchange_identification"));
  const std::string last = LastLineOf(words.substr(0, before));
  const bool is_ssh = last.starts_with("Warning: ");
  return last.empty() || is_ssh ? "" : "; the proxy command printed: " + Printable(last);
}

}  // namespace

std::string AllowedStrictness(const std::string& configured) {
  if (configured == "false" || configured == "no" || configured == "off") return "accept-new";
  return configured == "ask" ? "yes" : configured;
}

std::string WarningOf(const std::string& words) {
  const std::string line = LineWith(words, "Warning: ");
  return line.empty() ? "" : "ssh reports: " + Printable(LastLineOf(line));
}

HostFailure ExplainSsh(const std::string& host, const std::string& words) {
  for (const Known& known : kKnown) {
    const std::string line = LineWith(words, known.words);
    if (line.empty()) continue;
    return {.kind = known.kind,
            .message = "ssh " + host + ": " + Printable(LastLineOf(line)) + ProxyWords(words),
            .hint = HintFor(known.hint, host),
            .transient = known.transient};
  }
  const std::string last = LastLineOf(words);
  return {.kind = FailureKind::kSsh,
          .message =
              "ssh " + host + ": " + (last.empty() ? "it ended without a word" : Printable(last)),
          .hint = HintFor("'ssh HOST' must work without a question", host)};
}

std::string FindNameFault(std::string_view name) {
  constexpr std::size_t kLongestName = 255;  // RFC 1123
  constexpr std::size_t kLongestPart = 63;
  if (name.empty()) return "it is empty";
  if (name.size() > kLongestName) return "it has more than 255 characters";
  const auto is_foreign = [](char c) { return static_cast<unsigned char>(c) > 127; };
  if (std::any_of(name.begin(), name.end(), is_foreign)) {
    return "it has a letter that is not ASCII (a resolver may know its xn-- form)";
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  while (true) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    if (dot == 0) return "it has an empty part between dots";
    if (dot > kLongestPart) return "a part of it has more than 63 characters";
    if (dot == name.size()) return "";
    name.remove_prefix(dot + 1);
  }
}

std::string HintFor(std::string_view hint, const std::string& host) {
  constexpr std::string_view kHost = "HOST";
  const bool plain = IsPlain(host);
  const std::string word = ShellQuote(host);
  std::string text;
  for (std::size_t at = hint.find(kHost); at != std::string_view::npos; at = hint.find(kHost)) {
    text += hint.substr(0, at);
    hint.remove_prefix(at + kHost.size());
    if (!plain && hint.starts_with('\'')) {
      hint.remove_prefix(1);
      text.erase(text.rfind('\''), 1);
    }
    // After "--" ssh does not take the name for an option; ssh-keygen's -R takes any word.
    if (host.starts_with('-') && !text.ends_with("-R ")) text += "-- ";
    text += word;
  }
  return text.append(hint);
}

}  // namespace ds::cli
