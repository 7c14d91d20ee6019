#include "cli/remote/host_failure.h"

#include <algorithm>

namespace ds::cli {
namespace {

std::string Padded(std::string_view text, std::size_t width) {
  std::string padded(text);
  padded.resize(std::max(width, text.size()), ' ');
  return padded;
}

}  // namespace

HostFailure InterruptedFailure() {
  return {.kind = FailureKind::kInterrupted, .message = "interrupted"};
}

HostFailure LocalFailure(const Status& status) {
  return {.kind = FailureKind::kStart,
          .message = status.message(),
          .hint = "that is this machine's trouble, not the host's"};
}

std::string_view FailureName(FailureKind kind) {
  switch (kind) {
    case FailureKind::kName:
      return "name";
    case FailureKind::kRefused:
      return "refused";
    case FailureKind::kTimeout:
      return "timeout";
    case FailureKind::kUnreachable:
      return "unreachable";
    case FailureKind::kHandshake:
      return "handshake";
    case FailureKind::kHostKey:
      return "host key";
    case FailureKind::kAuthentication:
      return "authentication";
    case FailureKind::kShellNoise:
      return "shell noise";
    case FailureKind::kPlacing:
      return "placing dsrund";
    case FailureKind::kStart:
      return "starting dsrund";
    case FailureKind::kSsh:
      return "ssh";
    case FailureKind::kPort:
      return "port of dsrund";
    case FailureKind::kInterrupted:
      return "interrupted";
  }
  return "";
}

std::vector<std::string> MakeFailureTable(const std::vector<FailedHost>& failed, int host_count) {
  std::size_t host_width = 4;
  std::size_t kind_width = 3;
  for (const FailedHost& each : failed) {
    host_width = std::max(host_width, each.host.size());
    kind_width = std::max(kind_width, FailureName(each.failure.kind).size());
  }
  std::vector<std::string> lines;
  lines.push_back(std::to_string(failed.size()) + " of " + std::to_string(host_count) +
                  (host_count == 1 ? " host" : " hosts") + " cannot be used:");
  const std::string indent(host_width + kind_width + 6, ' ');
  for (const FailedHost& each : failed) {
    lines.push_back("  " + Padded(each.host, host_width) + "  " +
                    Padded(FailureName(each.failure.kind), kind_width) + "  " +
                    each.failure.message);
    if (!each.failure.hint.empty()) lines.push_back(indent + "-> " + each.failure.hint);
  }
  return lines;
}

}  // namespace ds::cli
