// dsrund: starts, watches and stops the ranks of one job on this host (see supervisor.h).

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/host/last_words.h"
#include "daemon/host/orphans.h"
#include "daemon/job/supervisor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/network/daemon_service.h"
#include "daemon/network/network_daemon.h"
#include "proto/dsrun.pb.h"
#include "proto/lease.h"
#include "proto/local_socket.h"
#include "proto/message_line.h"
#include "runtime/base/clock.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/base/parse_number.h"
#include "runtime/process/cgroups.h"
#include "runtime/process/descriptor_table.h"
#include "runtime/process/exit_process.h"
#include "runtime/process/malloc_arena.h"
#include "runtime/process/owned_cgroup.h"
#include "runtime/process/pipe.h"
#include "runtime/process/private_folder.h"
#include "runtime/process/thread_quota.h"
#include "runtime/process/unix_socket.h"

namespace ds::daemon {
namespace {

// Each rank uses five; a host rarely has more than 128 ranks.
constexpr int kDescriptors = 1024;

struct Flags {
  std::string folder;
  std::string listen;
  std::string job;
  std::string dsrank;
  int connection_fd = -1;
  int controller_fd = -1;
  int ready_fd = -1;
  std::optional<rlim_t> open_files;
};

std::vector<std::string> ListOwnEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

// Every thread inherits these settings. Signals arrive at the loop's signalfd only, and a closed
// connection or a file that would exceed `ulimit -f` is an error instead of a fatal signal.
void SetUpSignals() {
  BlockLoopSignals();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

// Ranks run in this session, without a terminal that could hang up on them. setsid fails if the
// starting process has already arranged that.
void LeaveTerminal() { static_cast<void>(::setsid()); }

std::filesystem::path FindDsrank(const Flags& flags) {
  if (!flags.dsrank.empty()) return flags.dsrank;
  const StatusOr<std::filesystem::path> self = FindOwnExecutable();
  if (!self.ok()) return {};
  const std::filesystem::path sibling = self->parent_path() / "dsrank";
  return ::access(sibling.c_str(), X_OK) == 0 ? sibling : std::filesystem::path();
}

SupervisorOptions MakeOptions(const Flags& flags) {
  SupervisorOptions options;
  options.job_id = flags.job;
  options.dsrank = FindDsrank(flags);
  options.environment = ListOwnEnvironment();
  const rlimit found = RaiseOpenFilesLimit();
  options.open_files = {flags.open_files.value_or(found.rlim_cur), found.rlim_max};
  return options;
}

// Ranks must not inherit this descriptor.
UniqueFd TakeInherited(int fd) {
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return UniqueFd(fd);
}

// Sends the answer once to the process that waits for this daemon.
Status WriteResponse(const v1::ListenResponse& answer, UniqueFd* pipe) {
  const Status said = WriteAll(pipe->get(), v1::EncodeLine(answer), "readiness pipe");
  pipe->Reset();
  return said;
}

Status WriteReady(UniqueFd* pipe) {
  v1::ListenResponse ready;
  ready.set_pid(static_cast<std::uint32_t>(::getpid()));
  ready.set_daemon_version(DS_VERSION);
  return WriteResponse(ready, pipe);
}

void ReportStartFailure(const Status& status, UniqueFd* pipe) {
  v1::ListenResponse answer;
  answer.set_error(status.message());
  if (!pipe->valid() || !WriteResponse(answer, pipe).ok()) LogError(status.message());
}

// Serves an agent that takes over the job (cli/host/local_daemon.h). On a file system without
// sockets no other agent can do that.
StatusOr<UniqueFd> AcceptConnections(const std::filesystem::path& socket, EventLoop* loop,
                                     RpcServer* server) {
  StatusOr<UniqueFd> listening = ListenUnix(socket);
  if (!listening.ok()) return UniqueFd();
  DS_RETURN_IF_ERROR(loop->Add(listening->get(), [fd = listening->get(), server] {
    UniqueFd connection(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) server->Serve(std::move(connection));
  }));
  return listening;
}

// Returns only if it could not start; otherwise the process ends with the loop.
Status Serve(const Flags& flags, UniqueFd* ready) {
  // dsrun created the folder and may be killed. While this process lives, the folder does not count
  // as abandoned.
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
  const std::filesystem::path socket = folder.path() / ::dsrun::v1::kLocalSocket;
  DS_ASSIGN_OR_RETURN(const UniqueFd listening,
                      AcceptConnections(socket, loop.get(), server.get()));
  if (ready->valid()) DS_RETURN_IF_ERROR(WriteReady(ready));
  const Status status = loop->Run();
  server->Drain();
  ::unlink(socket.c_str());
  folder.RemoveIfUnused();
  if (!status.ok()) LogError(status.message());
  // Nothing is left to save, and gRPC may take ten seconds to end its threads.
  std::_Exit(status.ok() ? kExitOk : kExitFailure);
}

void AddFlags(CLI::App* app, Flags* flags) {
  CLI::Option_group* place = app->add_option_group("place", "the source of calls");
  CLI::Option* connection =
      place->add_option("--connection-fd", flags->connection_fd,
                        "descriptor of the connection of the dsrun that starts this daemon");
  place->add_option("--listen", flags->listen,
                    "address of this host to listen on, on a free port, with the credentials in a "
                    "line of standard input (daemon/network/network_daemon.h)");
  place->require_option(1);
  app->add_option("--job", flags->job, "the job this daemon serves");
  connection->needs(
      app->add_option("--folder", flags->folder,
                      "with --connection-fd: a private folder for the files of the job"));
  app->add_option("--dsrank", flags->dsrank,
                  "the built-in trainer (default: in the folder of dsrund)");
  app->add_option("--controller-fd", flags->controller_fd,
                  "descriptor that closes when the controller exits");
  app->add_option(
      "--ready-fd", flags->ready_fd,
      "descriptor that receives the line of a ListenResponse when dsrund accepts calls");
  app->add_option("--open-files", flags->open_files,
                  "soft limit of open files of the ranks (default: that of this process)");
}

// The script that starts dsrund on another host executes an open file that it has verified
// (cli/remote/remote_daemon.cc). Its name would be meaningless in process lists.
void TakeNameOfFile(char* called) {
  constexpr std::string_view kDescriptor = "/proc/self/fd/";
  const std::string_view path = called;
  if (!path.starts_with(kDescriptor)) return;
  const std::optional<int> descriptor = ParseNumber<int>(path.substr(kDescriptor.size()));
  if (!descriptor) return;
  ::close(*descriptor);
  const StatusOr<std::filesystem::path> self = FindOwnExecutable();
  const std::string name = self.ok() ? self->filename().string() : "dsrund";
  ::prctl(PR_SET_NAME, name.c_str(), 0, 0, 0);
  const std::size_t title_bytes = std::strlen(called);
  std::memset(called, 0, title_bytes);
  name.copy(called, title_bytes);
}

// The guardian is the parent process of dsrund. If dsrund is killed, its ranks die, but the
// processes that ranks have started survive. They become children of the guardian. The guardian
// ends them, removes dsrund's folders and control groups, and ends like dsrund: with the same
// status or signal.
//
// It keeps the latest messages of a dsrund of another host, and leaves them in a file unless dsrund
// was released (last_words.h): nobody would see them otherwise.
//
// It does nothing else and holds no other resources, so only a kill ends it. Its memory is locked.
// It forwards terminating signals to dsrund. If the guardian itself is killed, dsrund gets SIGTERM
// and ends everything as usual. Only killing both at once leaves processes behind. With control
// groups, the dsrun that started them or the next dsrund ends these
// (runtime/process/owned_cgroup.h).

// A guardian is often stopped (SIGSTOP) together with its dsrund. Processes started by ranks would
// then outlive the lease, whose end other code relies on (proto/lease.h). So a timer continues the
// guardian of a dsrund with a lease, four times within the time limit of its clean-up.
constexpr std::chrono::nanoseconds kContinueEvery =
    std::chrono::nanoseconds(dsrun::v1::kLeaseCleanUp) / 4;

// Processes that SIGKILL has not ended by then are left alone.
constexpr std::chrono::seconds kKillTimeout{5};

sigset_t MakeSet(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// The pipe is the standard error of dsrund once it serves (network_daemon.h). Without a path
// nothing is left.
struct MessageLog {
  std::string path;
  Pipe messages;
};

// Closes the descriptors except for one, so that dsrund's peers see them close when dsrund ends.
void LeaveDescriptors(UniqueFd* kept) {
  constexpr int kFirst = STDERR_FILENO + 1;
  if (kept->valid() && kept->get() != kFirst) {
    ::dup2(kept->get(), kFirst);
    kept->Reset(kFirst);
  }
  ::closefrom(kept->valid() ? kFirst + 1 : kFirst);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
}

// Locks the writable pages. Code pages are shared with dsrund and can be read from the file again.
// Returns false if nothing was locked.
bool LockWritableMemory() {
  bool any = false;
  std::ifstream mappings("/proc/self/maps");
  for (std::string line; std::getline(mappings, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::array<char, 5> access{};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access.data()) !=
        3)
      continue;
    if (std::string_view(access.data()) != "rw-p") continue;
    // mlock requires a pointer; the system reports a number.
    any = ::mlock(reinterpret_cast<void*>(begin), end - begin) == 0 || any;  // NOLINT
  }
  return any;
}

bool HasSwap() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 && info.totalswap > 0;
}

// A guardian waiting for swapped memory would be late to end processes that outlive the lease. So
// it locks all memory, including future pages, if this user's limit permits. RLIMIT_MEMLOCK is 8
// MiB on most machines, and dsrund alone is larger.
void LockMemory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_MEMLOCK, &limit);  // up to the hard limit
  }
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) == 0 || LockWritableMemory() || !HasSwap()) return;
  LogWarning(
      "the guardian of dsrund may not lock memory (ulimit -l): this machine swaps, so it may be "
      "late to end processes that the ranks of a killed dsrund have started");
}

std::int64_t UnixSeconds() { return Clock::System().UnixNanos() / 1'000'000'000; }

// Reads what is there. Closes the pipe at its end.
void ReadMessages(UniqueFd* messages, LastWords* words) {
  std::array<char, 4096> buffer;
  while (messages->valid()) {
    const ssize_t size = ::read(messages->get(), buffer.data(), buffer.size());
    if (size == 0) messages->Reset();
    if (size <= 0) return;
    words->Add({buffer.data(), static_cast<std::size_t>(size)}, UnixSeconds());
  }
}

// Returns the exit status of dsrund.
int AwaitDaemon(pid_t daemon, const sigset_t& signals, UniqueFd* messages, LastWords* words) {
  const UniqueFd arrived(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  int status = 0;
  while (::waitpid(daemon, &status, arrived.valid() ? WNOHANG : 0) == 0) {
    std::array<pollfd, 2> sources{{{arrived.get(), POLLIN, 0}, {messages->get(), POLLIN, 0}}};
    ::poll(sources.data(), sources.size(), -1);
    signalfd_siginfo info{};
    while (::read(arrived.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      if (info.ssi_signo != SIGCHLD) ::kill(daemon, static_cast<int>(info.ssi_signo));
    }
    ReadMessages(messages, words);
  }
  ReadMessages(messages, words);
  return status;
}

std::string DescribeEnd(pid_t daemon, int status) {
  const std::string name = "dsrund, process " + std::to_string(daemon) + ", ";
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return name + "was ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) +
           ")";
  }
  if (WEXITSTATUS(status) == kEndedUnreleased) return name + "has ended by itself";
  return name + "has ended with status " + std::to_string(WEXITSTATUS(status));
}

void AwaitEndOfChild(std::chrono::steady_clock::duration longest) {
  const sigset_t signals = MakeSet({SIGCHLD});
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(longest).count();
  const timespec time{nanos / 1'000'000'000, nanos % 1'000'000'000};
  ::sigtimedwait(&signals, nullptr, &time);
}

void EndRemainingProcesses() {
  const std::filesystem::path groups = FindOwnCgroups().unified;
  if (!groups.empty()) OwnedCgroup::RemoveAbandoned(groups);  // kills all its processes at once
  const auto deadline = std::chrono::steady_clock::now() + kKillTimeout;
  while (!EndOrphans(Orphans::kKill)) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    AwaitEndOfChild(left);
  }
  if (!groups.empty()) OwnedCgroup::RemoveAbandoned(groups);  // it is empty now
  PrivateFolder::RemoveAbandoned();
}

[[noreturn]] void Guard(pid_t daemon, MessageLog log) {
  const sigset_t signals = MakeSet({SIGCHLD, SIGTERM, SIGINT, SIGHUP});
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
  LastWords words;
  LockMemory();
  LeaveDescriptors(&log.messages.read);
  const int status = AwaitDaemon(daemon, signals, &log.messages.read, &words);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code != kExitOk && code != kEndedUnreleased) {
    EndRemainingProcesses();
  } else {
    EndOrphans(Orphans::kKill);  // programs that dsrund asked about this host
  }
  // Last, because the home may be on a file system that does not answer.
  if (log.path.empty()) EndLikeChild(status);
  if (code == kExitOk) {
    RemoveLastWords(log.path);  // of an earlier daemon of the job
  } else {
    static_cast<void>(words.Leave(log.path, DescribeEnd(daemon, status), UnixSeconds()));
  }
  EndLikeChild(status);
}

// Child processes do not inherit the timer. SIGCONT needs a handler, because the kernel drops an
// ignored signal together with its timer.
Status ContinueWheneverStopped() {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  if (::sigaction(SIGCONT, &nothing, nullptr) != 0) return ErrnoError(errno, "sigaction");
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGCONT;
  timer_t timer{};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
    return ErrnoError(errno, "timer_create");
  const timespec interval{0, kContinueEvery.count()};
  const itimerspec times{interval, interval};
  if (::timer_settime(timer, 0, &times, nullptr) != 0) return ErrnoError(errno, "timer_settime");
  return OkStatus();
}

// Without the resources for it there is none: the job can run without.
MessageLog MakeMessageLog(const std::string& job) {
  MessageLog log;
  StatusOr<Pipe> pipe = MakePipe(O_NONBLOCK);
  if (!pipe.ok()) return log;
  log.messages = *std::move(pipe);
  log.path = FindLastWordsPath(job);
  return log;
}

// Forks and returns in the child, which continues as dsrund. The calling process becomes the
// guardian and does not return; it closes its descriptors, including the standard streams.
// `leased`: dsrund has a lease. Keeps the end of `log` for dsrund. Call it before other threads
// exist.
Status ContinueUnderGuardian(bool leased, MessageLog* log) {
  std::signal(SIGCHLD, SIG_DFL);  // if ignored, children's statuses would be lost
  DS_RETURN_IF_ERROR(AdoptOrphans());
  if (leased) DS_RETURN_IF_ERROR(ContinueWheneverStopped());
  const pid_t guardian = ::getpid();
  // Set before the fork, so that the guardian has its name before the daemon's ranks are visible.
  std::array<char, 16> name{};
  ::prctl(PR_GET_NAME, name.data(), 0, 0, 0);
  ::prctl(PR_SET_NAME, "dsrun-guard", 0, 0, 0);
  const pid_t daemon = ::fork();
  if (daemon <= 0) ::prctl(PR_SET_NAME, name.data(), 0, 0, 0);
  if (daemon < 0)
    return errno == EAGAIN ? OutOfResourcesError("no process may be started below it")
                           : ErrnoError(errno, "fork");
  if (daemon > 0) Guard(daemon, std::move(*log));
  log->messages.read.Reset();
  std::signal(SIGCONT, SIG_DFL);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0) return ErrnoError(errno, "death signal");
  // If the guardian was killed before prctl, there would be no signal.
  if (::getppid() != guardian) return CancelledError("the guardian is gone");
  return OkStatus();
}

int ServeOtherHost(const Flags& flags, MessageLog log, UniqueFd starter) {
  SupervisorOptions options = MakeOptions(flags);
  options.log_path = log.path;
  return ServeNetwork(flags.listen, std::move(options),
                      {std::move(starter), std::move(log.messages.write)});
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
  UniqueFd ready(flags.ready_fd);
  MessageLog log = flags.listen.empty() ? MessageLog() : MakeMessageLog(flags.job);
  if (const Status status = ContinueUnderGuardian(!flags.listen.empty(), &log); !status.ok()) {
    ReportStartFailure(status, &ready);
    return kExitFailure;
  }
  RaiseOpenFilesLimit();
  ReserveDescriptors(kDescriptors);
  SetUpSignals();
  if (!flags.listen.empty()) return ServeOtherHost(flags, std::move(log), std::move(starter));
  ReportStartFailure(Serve(flags, &ready), &ready);
  return kExitFailure;
}

}  // namespace
}  // namespace ds::daemon

int main(int argc, char** argv) { return ds::daemon::Main(argc, argv); }
