#include "cli/host/local_daemon.h"

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

#include "cli/host/local_connection.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/process/spawn_session.h"

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

// `named`, or the one beside the running program.
StatusOr<fs::path> FindDaemon(const fs::path& named) {
  fs::path path = named;
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

bool Same(const google::protobuf::MessageLite& one, const google::protobuf::MessageLite& other) {
  return one.SerializeAsString() == other.SerializeAsString();
}

}  // namespace

StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Begin(LocalDaemonOptions options) {
  DS_ASSIGN_OR_RETURN(options.dsrund, FindDaemon(options.dsrund));
  std::unique_ptr<LocalDaemon> daemon(new LocalDaemon(std::move(options)));
  DS_ASSIGN_OR_RETURN(LocalConnection connection, MakeLocalConnection());
  daemon->connection_ = std::move(connection.theirs);
  if (daemon->options_.take_warm) daemon->Offer();
  if (!daemon->offer_.has_value()) DS_RETURN_IF_ERROR(daemon->Spawn());
  daemon->client_ = connection.client.get();
  daemon->AskAhead();
  return daemon;
}

Status LocalDaemon::Await() {
  if (offer_.has_value()) {
    DS_ASSIGN_OR_RETURN(const bool taken, TakeOffered());
    if (!taken) {
      // Another daemon, another connection: that one may still find what was offered.
      DS_ASSIGN_OR_RETURN(LocalConnection connection, MakeLocalConnection());
      connection_ = std::move(connection.theirs);
      DS_RETURN_IF_ERROR(Spawn());
      client_ = connection.client.get();
    }
  }
  connection_.Reset();
  if (!ready_.valid()) return OkStatus();
  const Status status = AwaitReady();
  // It has no ranks yet, and may be past reading its pipe.
  if (!status.ok()) ::kill(pid_, SIGKILL);
  return status;
}

StatusOr<std::unique_ptr<LocalDaemon>> LocalDaemon::Start(LocalDaemonOptions options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<LocalDaemon> daemon, Begin(std::move(options)));
  DS_RETURN_IF_ERROR(daemon->Await());
  return daemon;
}

LocalDaemon::~LocalDaemon() { static_cast<void>(Close()); }

void LocalDaemon::Offer() {
  WarmJob job{.dsrund = options_.dsrund,
              .dsrank = options_.dsrank,
              .job_id = options_.job_id,
              .connection = connection_.get()};
  if (options_.opening.has_value()) {
    DaemonClient::AddVersions(&options_.opening->prepare);
    job.opening = &*options_.opening;
  }
  StatusOr<WarmOffer> offer = OfferJob(job);
  if (offer.ok()) {
    offer_ = std::move(offer).value();
  } else {
    LogDebug("starting a daemon: " + offer.status().message());
  }
  if (options_.opening.has_value()) options_.opening->port.reset();  // the daemon has it, or nobody
}

void LocalDaemon::AskAhead() {
  if (!launch_offered()) return;
  client_->AskAhead(
      {.job_id = options_.job_id, .generation = options_.opening->launch->generation()});
}

StatusOr<bool> LocalDaemon::TakeOffered() {
  const bool asked_ahead = launch_offered();
  DS_ASSIGN_OR_RETURN(std::optional<WarmDaemon> warm,
                      TakeWarmDaemon(*std::exchange(offer_, std::nullopt)));
  if (!warm.has_value()) return false;
  folder_ = std::move(warm->folder);
  pid_ = warm->pid;
  warm_lifeline_ = std::move(warm->lifeline);
  prepared_ = std::move(warm->prepared);
  launched_ = std::move(warm->launched);
  if (asked_ahead && !launched_.has_value()) client_->OpenWatch();  // nothing runs: asked in vain
  return true;
}

Status LocalDaemon::Spawn() {
  DS_ASSIGN_OR_RETURN(own_folder_, PrivateFolder::Make());
  folder_ = own_folder_.path();
  DS_ASSIGN_OR_RETURN(Pipe controller, MakePipe());
  DS_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  std::vector<std::string> arguments = {options_.dsrund.string(),
                                        "--job=" + options_.job_id,
                                        "--folder=" + folder_.string(),
                                        "--connection-fd=" + std::to_string(kChildConnectionFd),
                                        "--controller-fd=" + std::to_string(kChildControllerFd),
                                        "--ready-fd=" + std::to_string(kChildReadyFd)};
  if (!options_.dsrank.empty()) arguments.push_back("--dsrank=" + options_.dsrank.string());
  const std::array inherited = {InheritedFd{connection_.get(), kChildConnectionFd},
                                InheritedFd{controller.read.get(), kChildControllerFd},
                                InheritedFd{ready.write.get(), kChildReadyFd}};
  DS_ASSIGN_OR_RETURN(pid_,
                      SpawnInNewSession(options_.dsrund.string(), std::move(arguments), inherited));
  controller_pipe_ = std::move(controller.write);
  ready_ = std::move(ready.read);
  return OkStatus();
}

// One byte arrives when the daemon takes calls; the end of file when it ended instead.
Status LocalDaemon::AwaitReady() {
  const int timeout = static_cast<int>(options_.start_timeout.count());
  pollfd ready{ready_.get(), POLLIN, 0};
  int count = -1;
  do {
    count = ::poll(&ready, 1, timeout);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoError(errno, "poll");
  if (count == 0) {
    return DeadlineExceededError("dsrund was not ready within " + std::to_string(timeout) + " ms");
  }
  char byte = 0;
  if (::read(ready.fd, &byte, 1) != 1) {
    return UnavailableError("dsrund ended before it was ready; its last words are above");
  }
  ready_.Reset();
  return OkStatus();
}

StatusOr<v1::PrepareResponse> LocalDaemon::Prepare(const v1::PrepareRequest& request) {
  const std::optional<v1::PrepareResponse> prepared = std::exchange(prepared_, std::nullopt);
  if (!prepared.has_value()) return client_->Prepare(request);
  v1::PrepareRequest versioned = request;
  DaemonClient::AddVersions(&versioned);
  if (!Same(versioned, options_.opening->prepare)) return client_->Prepare(request);
  return *prepared;
}

std::future<StatusOr<v1::LaunchResponse>> LocalDaemon::BeginLaunch(
    const v1::LaunchRequest& request) {
  std::optional<v1::LaunchResponse> launched = std::exchange(launched_, std::nullopt);
  if (!launched.has_value()) return client_->BeginLaunch(request);
  std::promise<StatusOr<v1::LaunchResponse>> answer;
  if (Same(request, *options_.opening->launch)) {
    answer.set_value(*std::move(launched));
  } else {
    answer.set_value(InternalError("other ranks have been started along with the daemon"));
  }
  return answer.get_future();
}

void LocalDaemon::HangUp() {
  controller_pipe_.Reset();
  if (warm_lifeline_.valid()) ::shutdown(warm_lifeline_.get(), SHUT_WR);
}

Status LocalDaemon::Close() {
  HangUp();
  client_.reset();  // while the daemon ends
  const Status result = pid_ < 0                 ? OkStatus()
                        : warm_lifeline_.valid() ? AwaitWarmEnd()
                                                 : AwaitChildsEnd();
  pid_ = -1;
  std::error_code ignored;  // dsrund has removed it; this is for one that was killed
  fs::remove_all(folder_, ignored);
  return result;
}

Status LocalDaemon::AwaitChildsEnd() {
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

Status LocalDaemon::AwaitWarmEnd() {
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
