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

HostResult<StartedDaemon> StartPlaced(RemoteShell* shell, const std::string& path,
                                      const RemoteFacts& facts, const std::string& line,
                                      const std::string& job_id) {
  const RemoteShell::Script script{.text = kStart,
                                   .arguments = {path, facts.address, job_id, facts.dsrank},
                                   .input = line,
                                   .one_line_is_enough = true};
  const HostResult<ScriptResult> result = shell->Run(script);
  if (!result.ok()) return result.failure();
  if (result->out.empty()) {
    return StartFailure(path + " ended with status " + std::to_string(result->status) + ": " +
                        LastLine(result->err));
  }
  HostResult<StartedDaemon> started = ParseListenResponse(result->out);
  if (started.ok()) started->address = facts.address;
  return started;
}

// Dials the daemon's port, which SSH's port says nothing about; where that does not work, or SSH
// needed somebody else's help, SSH carries the connection.
HostOutcome ReachPort(std::unique_ptr<SshSession> session, const RemoteJob& job,
                      StartedDaemon* started) {
  const Endpoint daemon{started->address, started->port};
  if (!session->peer_address().empty()) {
    const auto deadline = std::chrono::steady_clock::now() + kPortTimeout;
    const HostResult<UniqueFd> dialled = Dial(daemon, deadline, job.interrupter);
    if (dialled.ok()) return HostOutcome();
    if (dialled.failure().kind == FailureKind::kInterrupted) return dialled.failure();
    started->notice += (started->notice.empty() ? "" : "; ") +
                       ("its daemon is reached through SSH, because " + dialled.failure().message);
  }
  session->SetDeadline(std::chrono::steady_clock::now() + kPortTimeout);
  HostResult<std::unique_ptr<SshTunnel>> tunnel = SshTunnel::Open(std::move(session), daemon);
  if (!tunnel.ok()) return tunnel.failure();
  started->tunnel = *std::move(tunnel);
  return HostOutcome();
}

// The place of dsrund on the host, where it may lie already.
HostResult<PlacedDaemon> FindOrPlace(RemoteShell* shell, const DaemonBinary& binary,
                                     const RemoteFacts& facts, const std::string& unique) {
  if (!facts.daemon.empty()) return PlacedDaemon{.path = facts.daemon};
  shell->session().SetDeadline(std::chrono::steady_clock::now() + kPlacingTimeout);
  return PlaceDaemon(shell, binary, unique);
}

}  // namespace

std::string StartedDaemon::target() const {
  if (tunnel != nullptr) return tunnel->target();
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "ipv6:[" + address + "]:" : "ipv4:" + address + ":") + std::to_string(port);
}

HostResult<StartedDaemon> ParseListenResponse(const std::string& printed) {
  v1::ListenResponse response;
  const bool understood = v1::DecodeLine(printed.substr(0, printed.find('\n')), &response);
  if (understood && !response.error().empty()) return StartFailure(response.error());
  constexpr std::uint32_t kLargestPid = std::numeric_limits<int>::max();
  if (!understood || response.port() < 1 || response.port() > 65535 || response.pid() < 1 ||
      response.pid() > kLargestPid) {
    return StartFailure("dsrund said '" + printed.substr(0, 200) + "' instead of its port");
  }
  StartedDaemon started;
  started.port = static_cast<int>(response.port());
  started.pid = static_cast<int>(response.pid());
  started.version = response.daemon_version();
  return started;
}

HostResult<StartedDaemon> StartRemoteDaemon(const RemoteTarget& target,
                                            const v1::Credentials& credentials,
                                            const RemoteJob& job, Interrupter::Deadline deadline) {
  auto session = std::make_unique<SshSession>(job.interrupter);
  HostOutcome reached = session->Connect(target, deadline);
  if (reached.ok()) reached = job.host_keys->Check(*session);
  if (reached.ok()) reached = session->Authenticate(target);
  if (!reached.ok()) return reached.failure();
  RemoteShell shell(session.get(), target.wrapper);
  const StatusOr<DaemonBinary>& binary = job.binary.get();
  if (!binary.ok()) return StartFailure(binary.status().message());
  const HostResult<RemoteFacts> facts = AskForFacts(&shell, *binary);
  if (!facts.ok()) return facts.failure();
  // Hosts may share a home, so the job alone does not make a name unique.
  const std::string unique = job.job_id + "." + std::to_string(target.node_rank);
  const HostResult<PlacedDaemon> placed = FindOrPlace(&shell, *binary, *facts, unique);
  if (!placed.ok()) return placed.failure();

  session->SetDeadline(std::chrono::steady_clock::now() + job.timeout);
  const std::string line = MakeListenLine(credentials, job.lease);
  HostResult<StartedDaemon> started = StartPlaced(&shell, placed->path, *facts, line, job.job_id);
  if (!started.ok()) return started;
  started->notice = placed->notice;
  const HostOutcome port = ReachPort(std::move(session), job, &*started);
  if (!port.ok()) return port.failure();
  return started;
}

}  // namespace ds::cli
