#include "cli/remote/remote_daemon.h"

#include <cstdint>
#include <limits>

#include "cli/remote/place_daemon.h"
#include "cli/remote/remote_shell.h"
#include "cli/remote/ssh_session.h"
#include "proto/message_line.h"

namespace ds::cli {
namespace {

// For 20 MB on a slow link.
constexpr std::chrono::minutes kPlacingTimeout{10};
constexpr std::chrono::seconds kPortTimeout{10};

// $2 dsrund, $3 the address to listen on, $4 the job, $5 dsrank or "".
constexpr char kStart[] = R"sh(
if [ -n "$5" ]; then exec "$2" --listen "$3" --job "$4" --dsrank "$5";
else exec "$2" --listen "$3" --job "$4"; fi)sh";

std::string MakeListenLine(const v1::Credentials& credentials, std::chrono::milliseconds lease) {
  v1::ListenRequest request;
  *request.mutable_credentials() = credentials;
  request.set_lease_seconds(std::chrono::duration<double>(lease).count());
  return v1::EncodeLine(request);
}

HostFailure StartFailure(const std::string& message) {
  return {.kind = FailureKind::kStart,
          .message = message,
          .hint = "can the host execute a program there, and has it a C library as new as ours?"};
}

MaybeFailure StartPlaced(RemoteShell* shell, const std::string& path, const RemoteFacts& facts,
                         const std::string& line, const std::string& job_id,
                         StartedDaemon* started) {
  ScriptResult result;
  const RemoteShell::Script script{.text = kStart,
                                   .arguments = {path, facts.address, job_id, facts.dsrank},
                                   .input = line,
                                   .one_line_is_enough = true};
  if (MaybeFailure failure = shell->Run(script, &result)) return failure;
  if (result.out.empty()) {
    return StartFailure(path + " ended with status " + std::to_string(result.status) + ": " +
                        LastLine(result.err));
  }
  started->address = facts.address;
  return ParseListenResponse(result.out, started);
}

// Dials the daemon's port, which SSH's port says nothing about; where that does not work, or SSH
// needed somebody else's help, SSH carries the connection.
MaybeFailure ReachPort(std::unique_ptr<SshSession> session, const RemoteJob& job,
                       StartedDaemon* started) {
  const Endpoint daemon{started->address, started->port};
  if (!session->peer_address().empty()) {
    UniqueFd ignored;
    const auto deadline = std::chrono::steady_clock::now() + kPortTimeout;
    const MaybeFailure failure = Dial(daemon, deadline, job.interrupter, &ignored);
    if (!failure || failure->kind == FailureKind::kInterrupted) return failure;
    started->notice += (started->notice.empty() ? "" : "; ") +
                       ("its daemon is reached through SSH, because " + failure->message);
  }
  session->SetDeadline(std::chrono::steady_clock::now() + kPortTimeout);
  return SshTunnel::Open(std::move(session), daemon, &started->tunnel);
}

}  // namespace

std::string StartedDaemon::target() const {
  if (tunnel != nullptr) return tunnel->target();
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "ipv6:[" + address + "]:" : "ipv4:" + address + ":") + std::to_string(port);
}

MaybeFailure ParseListenResponse(const std::string& printed, StartedDaemon* started) {
  v1::ListenResponse response;
  const bool understood = v1::DecodeLine(printed.substr(0, printed.find('\n')), &response);
  if (understood && !response.error().empty()) return StartFailure(response.error());
  constexpr std::uint32_t kLargestPid = std::numeric_limits<int>::max();
  if (!understood || response.port() < 1 || response.port() > 65535 || response.pid() < 1 ||
      response.pid() > kLargestPid) {
    return StartFailure("dsrund said '" + printed.substr(0, 200) + "' instead of its port");
  }
  started->port = static_cast<int>(response.port());
  started->pid = static_cast<int>(response.pid());
  started->version = response.daemon_version();
  return std::nullopt;
}

MaybeFailure StartRemoteDaemon(const RemoteTarget& target, const v1::Credentials& credentials,
                               const RemoteJob& job, Interrupter::Deadline deadline,
                               StartedDaemon* started) {
  auto session = std::make_unique<SshSession>(job.interrupter);
  if (MaybeFailure failure = session->Connect(target, deadline)) return failure;
  if (MaybeFailure failure = job.host_keys->Check(*session)) return failure;
  if (MaybeFailure failure = session->Authenticate(target)) return failure;
  RemoteShell shell(session.get(), target.wrapper);
  const StatusOr<DaemonBinary>& binary = job.binary.get();
  if (!binary.ok()) return StartFailure(binary.status().message());
  RemoteFacts facts;
  if (MaybeFailure failure = AskForFacts(&shell, *binary, &facts)) return failure;

  PlacedDaemon placed{.path = facts.daemon};
  if (placed.path.empty()) {
    session->SetDeadline(std::chrono::steady_clock::now() + kPlacingTimeout);
    // Hosts may share a home, so the job alone does not make a name unique.
    const std::string unique = job.job_id + "." + std::to_string(target.node_rank);
    if (MaybeFailure failure = PlaceDaemon(&shell, *binary, unique, &placed)) {
      return failure;
    }
  }
  session->SetDeadline(std::chrono::steady_clock::now() + job.timeout);
  const std::string line = MakeListenLine(credentials, job.lease);
  if (MaybeFailure failure = StartPlaced(&shell, placed.path, facts, line, job.job_id, started)) {
    return failure;
  }
  started->notice = placed.notice;
  return ReachPort(std::move(session), job, started);
}

}  // namespace ds::cli
