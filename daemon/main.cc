// dsrund: starts, watches and stops the ranks of one job on this host (see supervisor.h).

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "daemon/job/guardian.h"
#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/network/daemon_service.h"
#include "daemon/network/network_daemon.h"
#include "daemon/network/rpc_server.h"
#include "proto/dsrun.pb.h"
#include "proto/message_line.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/process/descriptor_table.h"
#include "runtime/process/malloc_arena.h"
#include "runtime/process/private_folder.h"

namespace ds::daemon {
namespace {

// Each rank has five; a host rarely has more than 128.
constexpr int kDescriptors = 1024;

struct Flags {
  std::string folder;
  std::string listen;
  std::string job;
  std::string dsrank;
  int connection_fd = -1;
  int controller_fd = -1;
  int ready_fd = -1;
};

std::vector<std::string> ListOwnEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

// Every thread inherits this: signals arrive at the loop's signalfd only, and a peer that hangs up
// is an error to handle, not a death.
void SetUpSignals() {
  BlockLoopSignals();
  std::signal(SIGPIPE, SIG_IGN);
}

// Ranks live in this session: one without a terminal that could hang up on them. Fails when
// whoever started this process has seen to it already.
void LeaveTerminal() { static_cast<void>(::setsid()); }

std::filesystem::path FindDsrank(const Flags& flags) {
  if (!flags.dsrank.empty()) return flags.dsrank;
  const StatusOr<std::filesystem::path> self = FindOwnExecutable();
  if (!self.ok()) return {};
  const std::filesystem::path beside = self->parent_path() / "dsrank";
  return ::access(beside.c_str(), X_OK) == 0 ? beside : std::filesystem::path();
}

SupervisorOptions MakeOptions(const Flags& flags) {
  SupervisorOptions options;
  options.job_id = flags.job;
  options.dsrank = FindDsrank(flags);
  options.environment = ListOwnEnvironment();
  return options;
}

// Ranks must not inherit it.
UniqueFd TakeInherited(int fd) {
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return UniqueFd(fd);
}

Status SayReady(int fd) {
  const UniqueFd pipe(fd);
  v1::ListenResponse ready;
  ready.set_pid(static_cast<std::uint32_t>(::getpid()));
  ready.set_daemon_version(DS_VERSION);
  return WriteAll(pipe.get(), v1::EncodeLine(ready), "readiness pipe");
}

// Returns only when it could not start; otherwise the process ends with the loop.
Status Serve(const Flags& flags) {
  // dsrun made it and may be killed; as long as this process lives it is not a folder left behind.
  DS_ASSIGN_OR_RETURN(const PrivateFolder folder, PrivateFolder::Join(flags.folder));
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, EventLoop::Create());
  SupervisorOptions options = MakeOptions(flags);
  options.folder = folder.path();
  UniqueFd connection = TakeInherited(flags.connection_fd);
  options.controller = TakeInherited(flags.controller_fd);
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<Supervisor> supervisor,
                      Supervisor::Create(loop.get(), std::move(options)));
  DaemonService service(loop.get(), supervisor.get());
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(&service));
  server->Serve(std::move(connection));
  if (flags.ready_fd >= 0) DS_RETURN_IF_ERROR(SayReady(flags.ready_fd));
  const Status status = loop->Run();
  server->Drain();
  std::error_code ignored;
  std::filesystem::remove(folder.path(), ignored);
  if (!status.ok()) LogError(status.message());
  // Nothing is left to save, and gRPC may take ten seconds to end its threads.
  std::_Exit(status.ok() ? kExitOk : kExitFailure);
}

void AddFlags(CLI::App* app, Flags* flags) {
  CLI::Option_group* place = app->add_option_group("place", "where calls come from");
  CLI::Option* connection =
      place->add_option("--connection-fd", flags->connection_fd,
                        "descriptor of the connection of the dsrun that starts this daemon");
  place->add_option("--listen", flags->listen,
                    "address of this host to listen on, on a free port, with the credentials that "
                    "come as a line on standard input (daemon/network/network_daemon.h)");
  place->require_option(1);
  app->add_option("--job", flags->job, "the job this daemon serves");
  connection->needs(
      app->add_option("--folder", flags->folder,
                      "with --connection-fd: a private folder for the files of the job"));
  app->add_option("--dsrank", flags->dsrank, "the built-in trainer (default: beside dsrund)");
  app->add_option("--controller-fd", flags->controller_fd,
                  "descriptor whose end means that the controller is gone");
  app->add_option("--ready-fd", flags->ready_fd,
                  "descriptor that gets the line of a ListenResponse when dsrund takes calls");
}

// The script that starts dsrund on another host executes the open file that it has checked
// (cli/remote/remote_daemon.cc), which is a name that says nothing to whoever lists processes.
void TakeNameOfFile(char* called) {
  constexpr std::string_view kDescriptor = "/proc/self/fd/";
  if (!std::string_view(called).starts_with(kDescriptor)) return;
  ::close(std::atoi(called + kDescriptor.size()));
  const StatusOr<std::filesystem::path> self = FindOwnExecutable();
  const std::string name = self.ok() ? self->filename().string() : "dsrund";
  ::prctl(PR_SET_NAME, name.c_str(), 0, 0, 0);
  const std::size_t room = std::strlen(called);
  std::memset(called, 0, room);
  name.copy(called, room);
}

int Main(int argc, char** argv) {
  TakeNameOfFile(argv[0]);
  LimitMallocArenas();
  CLI::App app("dsrund: starts, watches and stops the ranks of one dsrun job on this host");
  app.set_version_flag("--version", "dsrund " DS_VERSION);
  Flags flags;
  AddFlags(&app, &flags);
  CLI11_PARSE(app, argc, argv);

  InitLog("dsrund");
  if (flags.job.empty()) {
    LogError("--job is required; see dsrund --help");
    return kExitFailure;
  }
  FillStandardDescriptors();
  UniqueFd starter;
  if (!flags.listen.empty()) {
    StatusOr<UniqueFd> descriptor = ContinueInBackground();
    if (!descriptor.ok()) {
      LogError(descriptor.status().message());
      return kExitFailure;
    }
    starter = std::move(descriptor).value();
  }
  LeaveTerminal();
  if (const Status status = ContinueUnderGuardian(); !status.ok()) {
    LogError(status.message());
    return kExitFailure;
  }
  ReserveDescriptors(kDescriptors);
  SetUpSignals();
  if (!flags.listen.empty()) {
    return ServeNetwork(flags.listen, MakeOptions(flags), std::move(starter));
  }
  LogError(Serve(flags).message());
  return kExitFailure;
}

}  // namespace
}  // namespace ds::daemon

int main(int argc, char** argv) { return ds::daemon::Main(argc, argv); }
