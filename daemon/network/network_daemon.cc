#include "daemon/network/network_daemon.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/job/generation.h"
#include "daemon/network/check_credentials.h"
#include "daemon/network/daemon_service.h"
#include "proto/message_line.h"
#include "proto/peer_name.h"
#include "runtime/base/clock.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/pipe.h"
#include "runtime/process/private_folder.h"

namespace ds::daemon {
namespace {

constexpr std::size_t kLongestLine = 64 * 1024;
constexpr std::chrono::seconds kConnectionTimeout{60};
constexpr std::chrono::hours kFreshFor{24};

// The parts of a running daemon, in the order of construction.
struct Daemon {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<Supervisor> supervisor;
  std::unique_ptr<DaemonService> service;
  std::unique_ptr<RpcServer> server;
};

StatusOr<std::string> ReadLine(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kConnectionTimeout;
  std::string line;
  std::array<char, 4096> buffer;
  while (line.size() <= kLongestLine) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd readable{fd, POLLIN, 0};
    const int count = ::poll(&readable, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return DeadlineExceededError("standard input: no line received");
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoError(errno, "standard input");
    line.append(buffer.data(), static_cast<std::size_t>(size));
    const std::size_t end = line.find('\n');
    if (end != std::string::npos) return line.substr(0, end);
    if (size == 0) return InvalidArgumentError("standard input ended before its line did");
  }
  return InvalidArgumentError("standard input: the line is too long");
}

StatusOr<Daemon> StartDaemon(const std::string& address, const v1::ListenRequest& request,
                             SupervisorOptions options) {
  constexpr std::chrono::nanoseconds kSlowestHeartbeat = std::chrono::seconds(2);
  constexpr double kShortestLease = 0.05;
  DS_ASSIGN_OR_RETURN(const std::chrono::nanoseconds lease,
                      ToDuration("lease_seconds", request.lease_seconds(), kShortestLease));
  options.lease = lease;
  options.heartbeat_interval = std::min(kSlowestHeartbeat, lease / 4);
  options.survives_hangup = true;
  const std::string controller = ::dsrun::v1::ControllerPeerName(options.job_id);
  Daemon daemon;
  DS_ASSIGN_OR_RETURN(daemon.loop, EventLoop::Create());
  DS_ASSIGN_OR_RETURN(daemon.supervisor, Supervisor::Create(daemon.loop.get(), std::move(options)));
  daemon.service =
      std::make_unique<DaemonService>(daemon.loop.get(), daemon.supervisor.get(), controller);
  std::function<void()> on_gone;
  if (!request.lease_decides()) {
    on_gone = [supervisor = daemon.supervisor.get()] { supervisor->OnControllerGone(); };
  }
  DS_ASSIGN_OR_RETURN(daemon.server,
                      RpcServer::StartOnNetwork(daemon.loop.get(),
                                                {.address = address,
                                                 .credentials = request.credentials(),
                                                 .lease = lease,
                                                 .on_controller_gone = std::move(on_gone)},
                                                daemon.service.get()));
  return daemon;
}

Status WriteAnswer(const v1::ListenResponse& answer) {
  return WriteAll(STDOUT_FILENO, v1::EncodeLine(answer), "standard output");
}

// Closes the standard streams, so that the other ends (SSH) see them close.
Status LeaveStandardStreams(UniqueFd messages) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return ErrnoError(errno, "/dev/null");
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  if (messages.valid()) ::dup2(messages.get(), STDERR_FILENO);
  return OkStatus();
}

StatusOr<Daemon> StartAndAnswer(const std::string& address, SupervisorOptions options,
                                UniqueFd messages) {
  DS_ASSIGN_OR_RETURN(const std::string line, ReadLine(STDIN_FILENO));
  v1::ListenRequest request;
  if (!v1::DecodeLine(line, &request)) {
    return InvalidArgumentError("standard input: not the line of a ListenRequest");
  }
  DS_RETURN_IF_ERROR(
      CheckCredentials(request.credentials(), Clock::System().UnixNanos() / 1'000'000'000));
  v1::ListenResponse answer;
  answer.set_log_path(options.log_path);
  DS_ASSIGN_OR_RETURN(Daemon daemon, StartDaemon(address, request, std::move(options)));
  answer.set_port(daemon.server->port());
  answer.set_pid(static_cast<std::uint32_t>(::getpid()));
  answer.set_daemon_version(DS_VERSION);
  DS_RETURN_IF_ERROR(WriteAnswer(answer));
  DS_RETURN_IF_ERROR(LeaveStandardStreams(std::move(messages)));
  return daemon;
}

// Writes the reason for the missing daemon to standard output.
int WriteRefusal(const Status& status) {
  v1::ListenResponse answer;
  answer.set_error(status.message());
  if (!WriteAnswer(answer).ok()) LogError(status.message());
  return kExitFailure;
}

}  // namespace

StatusOr<UniqueFd> ContinueInBackground() {
  DS_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  const pid_t child = ::fork();
  if (child < 0) return ErrnoError(errno, "fork");
  if (child == 0) return std::move(pipe.write);
  pipe.write.Reset();
  char byte = 0;
  ssize_t count = -1;
  do {
    count = ::read(pipe.read.get(), &byte, 1);
  } while (count < 0 && errno == EINTR);
  std::_Exit(count == 1 ? kExitOk : kExitFailure);
}

void KeepFresh(EventLoop* loop, const std::string& path, std::chrono::nanoseconds interval) {
  // Failure is harmless: if times cannot be set, files cannot be deleted.
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  loop->CallAt(std::chrono::steady_clock::now() + interval,
               [=] { KeepFresh(loop, path, interval); });
}

int ServeNetwork(const std::string& address, SupervisorOptions options, DaemonStreams streams) {
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  // The host's openssl.cnf may name modules. They need the host's libc, and this program has its
  // own.
  ::OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  StatusOr<PrivateFolder> folder = PrivateFolder::Make();
  if (!folder.ok()) return WriteRefusal(folder.status());
  options.folder = folder->path();
  const StatusOr<Daemon> daemon =
      StartAndAnswer(address, std::move(options), std::move(streams.messages));
  if (!daemon.ok()) {
    folder->Remove();
    return WriteRefusal(daemon.status());
  }
  static_cast<void>(WriteAll(streams.starter.get(), "\n", "the process that was started"));
  streams.starter.Reset();
  KeepFresh(daemon->loop.get(), "/proc/self/exe", kFreshFor);
  const Status status = daemon->loop->Run();
  daemon->server->Drain();
  folder->Remove();
  // No state is left to save, and gRPC may take ten seconds to end its threads.
  if (!status.ok()) LogError(status.message());
  const int ended = daemon->supervisor->released() ? kExitOk : kEndedUnreleased;
  std::_Exit(status.ok() ? ended : kExitFailure);
}

}  // namespace ds::daemon
