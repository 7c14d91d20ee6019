#include "cli/host/local_daemon.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/host/deadlines.h"
#include "proto/local_socket.h"
#include "proto/message_line.h"
#include "runtime/base/files.h"
#include "runtime/base/process_stat.h"
#include "runtime/process/cgroups.h"
#include "runtime/process/descriptor_table.h"
#include "runtime/process/owned_cgroup.h"
#include "runtime/process/pipe.h"
#include "runtime/process/spawn_session.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

UniqueFd OpenProcess(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

constexpr std::chrono::milliseconds kForEver{-1};

// Returns when one of these processes has ended, or false after `timeout`. -1 is none.
template <std::size_t N>
bool AwaitEnd(const std::array<int, N>& pidfds, std::chrono::milliseconds timeout) {
  std::array<pollfd, N> ended{};
  for (std::size_t i = 0; i < N; ++i) ended[i] = {pidfds[i], POLLIN, 0};
  int count = -1;
  do {
    count = ::poll(ended.data(), N, static_cast<int>(timeout.count()));
  } while (count < 0 && errno == EINTR);
  return count != 0;
}

bool Lives(const UniqueFd& process) {
  return process.valid() && !AwaitEnd(std::array{process.get()}, std::chrono::milliseconds{0});
}

// dsrund finds its connection and two pipes there; anything above standard error would do.
constexpr int kChildConnectionFd = 3;
constexpr int kChildControllerFd = 4;
constexpr int kChildReadyFd = 5;

// `named`, or the one beside the running program.
StatusOr<fs::path> FindDaemon(const fs::path& named) {
  fs::path path = named;
  if (path.empty()) {
    DS_ASSIGN_OR_RETURN(const fs::path self, FindOwnExecutable());
    path = self.parent_path() / "dsrund";
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return NotFoundError(path.string() + ": " + std::generic_category().message(errno) +
                         "; dsrund must be in the folder of dsrun: build or install both");
  }
  return path;
}

}  // namespace

StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Start(LocalDaemonOptions options) {
  DS_ASSIGN_OR_RETURN(options.dsrund, FindDaemon(options.dsrund));
  DS_ASSIGN_OR_RETURN(SocketPair connection, MakeSocketPair());
  std::unique_ptr<LocalDaemon> daemon(
      new LocalDaemon(std::move(options), std::move(connection.ours)));
  DS_ASSIGN_OR_RETURN(const UniqueFd ready, daemon->Spawn(connection.theirs));
  connection.theirs.Reset();
  const Status status = daemon->AwaitReady(ready);
  if (status.ok()) return daemon;
  // Who says why it does not start ends by itself, and its guardian behind it.
  if (daemon->refused_ && AwaitEnd(std::array{daemon->guardian_.get()}, deadlines::kKilled)) {
    return status;
  }
  // The guardian leads its group, in which dsrund is: of a guardian's end alone dsrund would hear
  // by SIGTERM, which ends none that has been stopped or hangs.
  ::kill(-daemon->guardian_pid_, SIGKILL);
  return status;
}

StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Adopt(LocalDaemonOptions options,
                                                          const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(PrivateFolder joined, PrivateFolder::Join(folder));
  DS_ASSIGN_OR_RETURN(UniqueFd connection, ConnectUnix(folder / ::dsrun::v1::kLocalSocket));
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoError(errno, folder.string());
  }
  std::unique_ptr<LocalDaemon> daemon(new LocalDaemon(std::move(options), std::move(connection)));
  daemon->folder_ = std::move(joined);
  daemon->adopted_ = true;
  daemon->daemon_pid_ = peer.pid;
  daemon->daemon_ = OpenProcess(peer.pid);
  const std::optional<ProcessStat> stat = ReadProcessStat(peer.pid);
  if (!daemon->daemon_.valid() || !stat.has_value()) return UnavailableError("dsrund has ended");
  daemon->guardian_pid_ = stat->parent;
  // Without its guardian dsrund has the parent of this process as its own.
  if (stat->parent != ::getppid()) daemon->guardian_ = OpenProcess(stat->parent);
  return daemon;
}

void LocalDaemon::AwaitGuardianOfEnded(int guardian) {
  const UniqueFd process = OpenProcess(guardian);
  const std::optional<ProcessStat> stat = ReadProcessStat(guardian);
  // Another process may have its number by now.
  if (process.valid() && stat.has_value() && stat->name == "dsrun-guard") {
    AwaitEnd(std::array{process.get()}, deadlines::kGuardian);
  }
}

bool LocalDaemon::CanBeAdopted() const {
  return ::access((folder() / ::dsrun::v1::kLocalSocket).c_str(), F_OK) == 0;
}

LocalDaemon::~LocalDaemon() { static_cast<void>(Close()); }

StatusOr<UniqueFd> LocalDaemon::Spawn(const UniqueFd& connection) {
  DS_ASSIGN_OR_RETURN(folder_, PrivateFolder::Make());
  Pipe controller;
  if (options_.controller_fd < 0) {
    DS_ASSIGN_OR_RETURN(controller, MakePipe());
  }
  const int bound_by = options_.controller_fd < 0 ? controller.read.get() : options_.controller_fd;
  DS_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  std::vector<std::string> arguments = {options_.dsrund.string(),
                                        "--job=" + options_.job_id,
                                        "--folder=" + folder().string(),
                                        "--connection-fd=" + std::to_string(kChildConnectionFd),
                                        "--controller-fd=" + std::to_string(kChildControllerFd),
                                        "--ready-fd=" + std::to_string(kChildReadyFd)};
  // Not the soft limit of this process, which has raised it.
  const rlim_t open_files = RaiseOpenFilesLimit().rlim_cur;
  if (open_files != RLIM_INFINITY)
    arguments.push_back("--open-files=" + std::to_string(open_files));
  if (!options_.dsrank.empty()) arguments.push_back("--dsrank=" + options_.dsrank.string());
  const std::array inherited = {InheritedFd{connection.get(), kChildConnectionFd},
                                InheritedFd{bound_by, kChildControllerFd},
                                InheritedFd{ready.write.get(), kChildReadyFd}};
  DS_ASSIGN_OR_RETURN(guardian_pid_,
                      SpawnInNewSession(options_.dsrund.string(), std::move(arguments), inherited));
  guardian_ = OpenProcess(guardian_pid_);
  controller_pipe_ = std::move(controller.write);
  return std::move(ready.read);
}

// The line of a ListenResponse arrives when the daemon takes calls; the end of file when it ended
// instead.
Status LocalDaemon::AwaitReady(const UniqueFd& ready) {
  const int timeout = static_cast<int>(options_.start_timeout.count());
  std::array waiting = {pollfd{ready.get(), POLLIN, 0}, pollfd{options_.interrupt_fd, POLLIN, 0}};
  int count = -1;
  do {
    count = ::poll(waiting.data(), waiting.size(), timeout);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoError(errno, "poll");
  if (count == 0) {
    return DeadlineExceededError("dsrund was not ready within " + std::to_string(timeout) + " ms");
  }
  if (waiting[1].revents != 0) return CancelledError("the start of dsrund was interrupted");
  std::array<char, 512> line{};  // comes in one piece, as short ones through a pipe do
  const ssize_t size = ::read(ready.get(), line.data(), line.size());
  if (size <= 0) {
    return UnavailableError(
        "dsrund ended before it was ready; its last words are on standard error (of a job: "
        "agent.log)");
  }
  const std::string_view text(line.data(), static_cast<std::size_t>(size));
  v1::ListenResponse response;
  const bool understood = v1::DecodeLine(text.substr(0, text.find('\n')), &response);
  if (understood && !response.error().empty()) {
    refused_ = true;
    return UnavailableError("dsrund: " + response.error());
  }
  if (!understood || response.pid() == 0) {
    return InternalError("dsrund did not report its pid when it was ready; is it of this version?");
  }
  daemon_pid_ = static_cast<int>(response.pid());
  daemon_ = OpenProcess(daemon_pid_);
  // It may have ended, and its number be another's by now, whose parent is not the guardian.
  const std::optional<ProcessStat> opened = ReadProcessStat(daemon_pid_);
  if (!opened.has_value() || opened->parent != guardian_pid_) daemon_.Reset();
  return OkStatus();
}

Status LocalDaemon::Close(const NoticeCallback& notice) {
  HangUp();
  DaemonClient::Abandon();
  const bool is_running = guardian_pid_ > 0 && !std::exchange(closed_, true);
  const Status result = is_running ? ReapGuardian(notice) : OkStatus();
  folder_.Remove();  // dsrund has removed it unless it was killed
  return result;
}

void LocalDaemon::Abandon() {
  DaemonClient::Abandon();
  static_cast<void>(Kill());
}

std::string LocalDaemon::DescribeWait() {
  if (Lives(daemon_)) {
    return "waiting for dsrund, process " + std::to_string(daemon_pid_) +
           ", which is to stop its ranks and end; Ctrl-C kills it and them";
  }
  if (!Lives(guardian_)) return "";
  guardian_named_ = true;
  return "waiting for the guardian of dsrund, process " + std::to_string(guardian_pid_) +
         ", which ends the processes that ranks have left; Ctrl-C kills it";
}

void LocalDaemon::TellOfWait(const NoticeCallback& notice) {
  const std::string waits_for = DescribeWait();  // who was waited for may have ended by now
  if (notice && !waits_for.empty()) notice(waits_for);
}

bool LocalDaemon::Kill() {
  const std::lock_guard lock(kill_mutex_);
  const UniqueFd& process = guardian_named_ && !Lives(daemon_) ? guardian_ : daemon_;
  if (process.valid() &&
      ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0) {
    killed_ = true;
  }
  return killed_;
}

void LocalDaemon::AwaitGuardian(const NoticeCallback& notice) {
  while (!AwaitEnd(std::array{guardian_.get()}, deadlines::kUntilToldOfDaemon)) {
    TellOfWait(notice);
    // When dsrund has ended, its guardian gets a while before it is spoken of, and another before
    // it is killed: nobody may be there to do it.
    // Which of them that is, the notice has decided: dsrund may end while it is given.
    if (!guardian_named_) {
      AwaitEnd(std::array{guardian_.get(), daemon_.get()}, kForEver);
    } else if (!AwaitEnd(std::array{guardian_.get()}, deadlines::kGuardian)) {
      ::kill(guardian_pid_, SIGKILL);
    }
  }
}

Status LocalDaemon::ReapGuardian(const NoticeCallback& notice) {
  if (guardian_.valid()) AwaitGuardian(notice);
  if (adopted_) {  // its status goes to its new parent
    EndRemainingProcesses(notice);
    return OkStatus();
  }
  int status = 0;
  pid_t waited = -1;
  do {
    waited = ::waitpid(guardian_pid_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited < 0) return ErrnoError(errno, "waiting for dsrund");
  if (status != 0) EndRemainingProcesses(notice);
  if (WIFSIGNALED(status)) {
    return InternalError("dsrund was ended by signal " + std::to_string(WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == 0) return OkStatus();
  return InternalError("dsrund ended with status " + std::to_string(WEXITSTATUS(status)));
}

// Without its guardian dsrund ends by itself, and ends its ranks, unless it is killed, too.
void LocalDaemon::EndRemainingProcesses(const NoticeCallback& notice) {
  if (daemon_.valid() && !AwaitEnd(std::array{daemon_.get()}, deadlines::kUntilToldOfDaemon)) {
    TellOfWait(notice);
    AwaitEnd(std::array{daemon_.get()}, deadlines::kDaemonWithoutGuardian);
  }
  const fs::path groups = FindOwnCgroups().unified;
  if (!groups.empty()) OwnedCgroup::RemoveAbandoned(groups, deadlines::kKilled);
}

}  // namespace ds::cli
