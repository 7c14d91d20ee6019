#include "daemon/warm_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/handover.h"
#include "daemon/loop/event_loop.h"
#include "daemon/network/daemon_service.h"
#include "daemon/network/rpc_server.h"
#include "daemon/warm_pool.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/process/private_folder.h"
#include "runtime/process/unix_socket.h"

namespace ds::daemon {
namespace {

Status RunPool(int waiting) {
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, EventLoop::Create());
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<WarmPool> pool,
                      WarmPool::Create(loop.get(), {.waiting = waiting}));
  DS_RETURN_IF_ERROR(
      WriteAll(STDOUT_FILENO, "dsrund serves at " + pool->socket() + "\n", "standard output"));
  return loop->Run();
}

bool HasFailed(const v1::PrepareResponse& response) {
  return std::any_of(
      response.findings().begin(), response.findings().end(),
      [](const v1::Finding& finding) { return finding.level() == v1::Finding::FAIL; });
}

// What the controller has asked along with the job. A refusal of Prepare or Launch does not reach
// it this way: the call that then comes gets it.
Confirmation Answer(const std::optional<v1::PrepareRequest>& prepare,
                    const std::optional<TakenJob::Launch>& launch, Supervisor* supervisor) {
  Confirmation answer;
  if (!prepare.has_value()) return answer;
  StatusOr<v1::PrepareResponse> prepared = supervisor->Prepare(*prepare);
  if (!prepared.ok()) return answer;
  answer.prepared = std::move(prepared).value();
  if (!launch.has_value() || HasFailed(*answer.prepared) || !launch->claim.Take()) return answer;
  StatusOr<v1::LaunchResponse> launched = supervisor->Launch(launch->request);
  if (launched.ok()) answer.launched = std::move(launched).value();
  return answer;
}

// Becomes the daemon of the job and tells its controller.
Status TakeJob(TakenJob job, const std::string& folder, Supervisor* supervisor, RpcServer* server) {
  const int controller = job.controller.get();
  UniqueFd connection = std::move(job.connection);
  const std::optional<v1::PrepareRequest> prepare = std::move(job.prepare);
  const std::optional<TakenJob::Launch> launch = std::move(job.launch);
  DS_RETURN_IF_ERROR(supervisor->TakeJob(std::move(job)));
  // Beside the launch: calls that come meanwhile wait for the loop.
  const auto served = std::async(std::launch::async, [&] { server->Serve(std::move(connection)); });
  Confirmation confirmation = Answer(prepare, launch, supervisor);
  confirmation.folder = folder;
  // A controller that has gone is for the loop to find out, which stops what runs.
  static_cast<void>(ConfirmJob(controller, std::move(confirmation)));
  return OkStatus();
}

// While its controller ends, whose user waits for it: the kernel takes the processors for a
// millisecond to take a process apart. A controller that goes on living is not waited for.
void StepAside(const UniqueFd& controller_process) {
  constexpr int kMilliseconds = 100;
  if (!controller_process.valid()) return;
  pollfd ended{controller_process.get(), POLLIN, 0};
  static_cast<void>(::poll(&ended, 1, kMilliseconds));
}

// The first connection finds what connections need in memory.
Status Rehearse(RpcServer* server, Supervisor* supervisor) {
  supervisor->Rehearse();
  DS_ASSIGN_OR_RETURN(SocketPair nobody, MakeSocketPair());
  server->Serve(std::move(nobody.theirs));
  return OkStatus();
}

// Returns when it could not start or nobody needs it; otherwise the process ends with the loop.
Status WaitAndServe(SupervisorOptions options, PrivateFolder* private_folder) {
  const UniqueFd listener(kInheritedListener);
  UniqueFd owner(kInheritedOwner);
  for (const UniqueFd* fd : {&listener, static_cast<const UniqueFd*>(&owner)}) {
    ::fcntl(fd->get(), F_SETFD, FD_CLOEXEC);
  }
  const std::filesystem::path folder = private_folder->path();
  options.folder = folder;
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, EventLoop::Create());
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<Supervisor> supervisor,
                      Supervisor::Create(loop.get(), std::move(options)));
  DaemonService service(loop.get(), supervisor.get());
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(&service));
  DS_RETURN_IF_ERROR(Rehearse(server.get(), supervisor.get()));
  DS_ASSIGN_OR_RETURN(TakenJob job, AwaitJob({.listener = listener.get(), .owner = owner.get()}));
  owner.Reset();  // the pool starts the next one
  const UniqueFd controller_process = std::move(job.process);
  DS_RETURN_IF_ERROR(TakeJob(std::move(job), folder.string(), supervisor.get(), server.get()));
  const Status status = loop->Run();
  server->Drain();
  private_folder->Remove();
  supervisor->LetGoOfController();
  StepAside(controller_process);
  if (!status.ok()) LogError(status.message());
  std::_Exit(status.ok() ? 0 : 1);  // as in main.cc
}

}  // namespace

int ServePool(int waiting) {
  const Status status = RunPool(waiting);
  if (!status.ok()) LogError(status.message());
  return status.ok() ? 0 : 1;
}

int ServeHandedOver(SupervisorOptions options) {
  StatusOr<PrivateFolder> folder = PrivateFolder::Make();
  if (!folder.ok()) {
    LogError(folder.status().message());
    return 1;
  }
  const Status status = WaitAndServe(std::move(options), &*folder);
  folder->Remove();
  const bool unused = status.code() == StatusCode::kCancelled;
  if (!unused) LogError(status.message());
  std::_Exit(unused ? 0 : 1);
}

}  // namespace ds::daemon
