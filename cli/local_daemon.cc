#include "cli/local_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/base/spawn_session.h"
#include "runtime/base/unix_socket.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Where dsrund finds its connection and two pipes; anything above standard error would do.
constexpr int kChildConnectionFd = 3;
constexpr int kChildControllerFd = 4;
constexpr int kChildReadyFd = 5;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

StatusOr<fs::path> FindDaemon(const LocalDaemonOptions& options) {
  fs::path path = options.dsrund;
  if (path.empty()) {
    DS_ASSIGN_OR_RETURN(const fs::path self, OwnExecutable());
    path = self.parent_path() / "dsrund";
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return NotFoundError(path.string() + ": " + std::generic_category().message(errno) +
                         "; dsrund must lie beside dsrun, build or install both");
  }
  return path;
}

// One byte arrives when the daemon takes calls; the end of file when it ended instead.
Status AwaitReady(int ready_fd, std::chrono::milliseconds timeout) {
  pollfd ready{ready_fd, POLLIN, 0};
  int count = -1;
  do {
    count = ::poll(&ready, 1, static_cast<int>(timeout.count()));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoError(errno, "poll");
  if (count == 0) {
    return DeadlineExceededError("dsrund was not ready within " + std::to_string(timeout.count()) +
                                 " ms");
  }
  char byte = 0;
  if (::read(ready_fd, &byte, 1) != 1) {
    return UnavailableError("dsrund ended before it was ready; its last words are above");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Start(const LocalDaemonOptions& options) {
  DS_ASSIGN_OR_RETURN(const fs::path dsrund, FindDaemon(options));
  std::unique_ptr<LocalDaemon> daemon(new LocalDaemon());
  DS_ASSIGN_OR_RETURN(SocketPair connection, MakeSocketPair());
  UniqueFd offer;
  if (options.take_warm) {
    StatusOr<UniqueFd> made = OfferJob({.dsrund = dsrund,
                                        .dsrank = options.dsrank,
                                        .job_id = options.job_id,
                                        .connection = connection.theirs.get()});
    if (made.ok()) {
      offer = std::move(made).value();
    } else {
      LogDebug("starting a daemon: " + made.status().message());
    }
  }
  UniqueFd ready;
  if (!offer.valid()) {
    DS_ASSIGN_OR_RETURN(ready, daemon->Spawn(dsrund, options, connection.theirs.get()));
  }
  // While the other process looks at the offer, or starts.
  daemon->client_ = std::make_unique<DaemonClient>(std::move(connection.ours));
  if (offer.valid() && !daemon->UseWarm(std::move(offer))) {
    DS_ASSIGN_OR_RETURN(ready, daemon->Spawn(dsrund, options, connection.theirs.get()));
  }
  if (!ready.valid()) return daemon;
  connection.theirs.Reset();
  if (Status status = AwaitReady(ready.get(), options.start_timeout); !status.ok()) {
    ::kill(daemon->pid_, SIGKILL);  // it has no ranks yet, and may be past reading its pipe
    return status;
  }
  return daemon;
}

LocalDaemon::~LocalDaemon() { static_cast<void>(Close()); }

bool LocalDaemon::UseWarm(UniqueFd offer) {
  StatusOr<WarmDaemon> warm = TakeWarmDaemon(std::move(offer));
  if (!warm.ok()) {
    LogDebug("starting a daemon: " + warm.status().message());
    return false;
  }
  folder_ = std::move(warm->folder);
  pid_ = warm->pid;
  warm_lifeline_ = std::move(warm->lifeline);
  return true;
}

StatusOr<UniqueFd> LocalDaemon::Spawn(const fs::path& dsrund, const LocalDaemonOptions& options,
                                      int connection) {
  DS_ASSIGN_OR_RETURN(own_folder_, PrivateFolder::Make());
  folder_ = own_folder_.path();
  DS_ASSIGN_OR_RETURN(Pipe controller, MakePipe());
  DS_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  std::vector<std::string> arguments = {dsrund.string(),
                                        "--job=" + options.job_id,
                                        "--folder=" + folder_.string(),
                                        "--connection-fd=" + std::to_string(kChildConnectionFd),
                                        "--controller-fd=" + std::to_string(kChildControllerFd),
                                        "--ready-fd=" + std::to_string(kChildReadyFd)};
  if (!options.dsrank.empty()) arguments.push_back("--dsrank=" + options.dsrank.string());
  const std::array inherited = {InheritedFd{connection, kChildConnectionFd},
                                InheritedFd{controller.read.get(), kChildControllerFd},
                                InheritedFd{ready.write.get(), kChildReadyFd}};
  DS_ASSIGN_OR_RETURN(pid_, SpawnInNewSession(dsrund.string(), std::move(arguments), inherited));
  controller_pipe_ = std::move(controller.write);
  return std::move(ready.read);
}

void LocalDaemon::HangUp() {
  controller_pipe_.Reset();
  if (warm_lifeline_.valid()) ::shutdown(warm_lifeline_.get(), SHUT_WR);
}

Status LocalDaemon::Close() {
  HangUp();
  client_.reset();  // while the daemon ends
  const Status result = pid_ < 0 ? OkStatus() : warm_lifeline_.valid() ? AwaitWarm() : AwaitChild();
  pid_ = -1;
  std::error_code ignored;  // dsrund has removed it; this is for one that was killed
  fs::remove_all(folder_, ignored);
  return result;
}

Status LocalDaemon::AwaitChild() {
  int status = 0;
  pid_t waited = -1;
  do {
    waited = ::waitpid(pid_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited < 0) return ErrnoError(errno, "waiting for dsrund");
  if (WIFSIGNALED(status)) {
    return InternalError("dsrund was ended by signal " + std::to_string(WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == 0) return OkStatus();
  return InternalError("dsrund ended with status " + std::to_string(WEXITSTATUS(status)));
}

Status LocalDaemon::AwaitWarm() {
  char byte = 0;
  pollfd ended{warm_lifeline_.get(), POLLIN, 0};
  // It says nothing more: what can be read is its end.
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
  static_cast<void>(::read(ended.fd, &byte, 1));
  warm_lifeline_.Reset();
  return OkStatus();
}

}  // namespace ds::cli
