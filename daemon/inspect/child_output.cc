#include "daemon/inspect/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/base/unique_fd.h"
#include "runtime/process/pipe.h"

namespace ds::daemon {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

std::vector<char*> MakePointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct RunningPrograms {
  std::atomic<int> count = 0;  // with those that are about to start
  std::mutex mutex;
  std::set<pid_t> pids;  // guarded by mutex: not reaped yet
};

RunningPrograms& Running() {
  static RunningPrograms running;
  return running;
}

struct RunningProgram {
  RunningProgram() { ++Running().count; }
  ~RunningProgram() { --Running().count; }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
};

// A child process that leads a session. The destructor ends its group and reaps it.
class Child {
 public:
  Child(pid_t pid, UniqueFd out, UniqueFd err)
      : out_(std::move(out)), err_(std::move(err)), pid_(pid) {
    const std::lock_guard lock(Running().mutex);
    Running().pids.insert(pid_);
  }
  ~Child() {
    if (pid_ > 0) static_cast<void>(Reap());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Reads until the answer is complete, or both streams and the process have ended. Returns false
  // after the deadline.
  StatusOr<bool> Read(const ChildCommand& command, Deadline deadline, ChildOutput* output);
  // Ends the group and returns the status of waitpid.
  StatusOr<int> Reap();

 private:
  UniqueFd out_;
  UniqueFd err_;
  pid_t pid_;
};

// Reads the available bytes; closes the pipe at its end.
void TakeFrom(UniqueFd* pipe, std::string* text) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(pipe->get(), buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return pipe->Reset();
  text->append(buffer.data(), std::min<std::size_t>(static_cast<std::size_t>(got),
                                                    kMaxBytes - std::min(kMaxBytes, text->size())));
}

StatusOr<bool> Child::Read(const ChildCommand& command, Deadline deadline, ChildOutput* output) {
  UniqueFd running(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!running.valid()) return ErrnoError(errno, "pidfd_open");
  while (out_.valid() || err_.valid() || running.valid()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    // poll ignores an entry whose descriptor is -1.
    std::array<pollfd, 3> waited = {
        {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {running.get(), POLLIN, 0}}};
    // Processes that the program has left may keep its streams open.
    const int patience = running.valid() ? static_cast<int>(left.count()) : 0;
    const int ready = ::poll(waited.data(), waited.size(), patience);
    if (ready == 0 && !running.valid()) return true;
    if (ready < 0) continue;
    if (waited[0].revents != 0) TakeFrom(&out_, &output->out);
    if (waited[1].revents != 0) TakeFrom(&err_, &output->err);
    if (waited[2].revents != 0) running.Reset();
    if (command.is_complete && command.is_complete(output->out)) return true;
  }
  return true;
}

StatusOr<int> Child::Reap() {
  {
    const std::lock_guard lock(Running().mutex);
    ::kill(-pid_, SIGKILL);
    Running().pids.erase(pid_);
  }
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  pid_ = -1;
  if (reaped < 0) return ErrnoError(errno, "its exit status");
  return status;
}

std::string LastFilledLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const std::size_t newline = text.rfind('\n', end);
  const std::size_t start = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(start, end - start + 1);
}

StatusOr<pid_t> Spawn(const ChildCommand& command, int out, int err) {
  SpawnSettings settings;
  if (!command.working_directory.empty()) {
    posix_spawn_file_actions_addchdir_np(&settings.files, command.working_directory.c_str());
  }
  posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&settings.files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&settings.files, err, STDERR_FILENO);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&settings.attributes, &signals);  // the daemon blocks its own
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&settings.attributes, &signals);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> variables;
  if (command.environment) variables = MakePointers(*command.environment);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, command.executable.c_str(), &settings.files,
                                  &settings.attributes, MakePointers(command.argv).data(),
                                  command.environment ? variables.data() : environ);
  if (error != 0) return ErrnoError(error, command.executable);
  return pid;
}

}  // namespace

StatusOr<ChildOutput> RunAndRead(const ChildCommand& command, std::chrono::nanoseconds time_limit) {
  const Deadline deadline = std::chrono::steady_clock::now() + time_limit;
  DS_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  DS_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  const RunningProgram running;  // before its process exists, and until it is reaped
  DS_ASSIGN_OR_RETURN(const pid_t pid, Spawn(command, out.write.get(), err.write.get()));
  out.write.Reset();
  err.write.Reset();
  Child child(pid, std::move(out.read), std::move(err.read));
  ChildOutput output;
  DS_ASSIGN_OR_RETURN(const bool answered, child.Read(command, deadline, &output));
  if (!answered) {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(time_limit);
    return DeadlineExceededError(command.executable + " gave no answer in " +
                                 std::to_string(limit.count()) + " ms");
  }
  StatusOr<int> status = child.Reap();
  if (!status.ok()) return status.status().WithContext(command.executable);
  output.signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
  output.exit_status = output.signal != 0 ? 128 + output.signal : WEXITSTATUS(*status);
  return output;
}

std::string DescribeEnd(const ChildOutput& output) {
  const std::string end = output.signal != 0
                              ? "was ended by signal " + std::to_string(output.signal)
                              : "ended with status " + std::to_string(output.exit_status);
  const std::string why = LastFilledLine(output.err);
  return end + (why.empty() ? "" : ": " + why);
}

bool HasRunningPrograms() { return Running().count > 0; }

void KillRunningPrograms() {
  const std::lock_guard lock(Running().mutex);
  for (const pid_t pid : Running().pids) ::kill(-pid, SIGKILL);
}

}  // namespace ds::daemon
