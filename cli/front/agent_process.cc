#include "cli/front/agent_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/process_stat.h"
#include "runtime/process/exit_process.h"
#include "runtime/process/thread_quota.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivateMode = 0600;

// A file that cannot be opened loses only messages of libraries.
UniqueFd OpenAgentLog(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kPrivateMode));
}

void LeaveTerminal(int log) {
  ::setsid();
  ::prctl(PR_SET_NAME, "dsrun-agent", 0, 0, 0);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(log >= 0 ? log : null.get(), fd);
}

void RunAsAgent(const AgentJob& job, UniqueFd connection) {
  const fs::path path = job.run_directory->path() / "agent.log";
  const UniqueFd log = OpenAgentLog(path);
  LeaveTerminal(log.get());
  RunAgent(job, std::move(connection), [&](int status) {
    struct stat info {};
    const bool is_empty = log.valid() && ::fstat(log.get(), &info) == 0 && info.st_size == 0;
    if (is_empty) ::unlink(path.c_str());
    ExitProcess(status);
  });
}

// Returns the children of all threads of a process.
std::vector<pid_t> ListChildren(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  const fs::path tasks = fs::path("/proc") / std::to_string(pid) / "task";
  for (const auto& task : fs::directory_iterator(tasks, error)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

// Its number may have become another process's since it was listed.
void KillChildOf(pid_t parent, pid_t child) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const std::optional<ProcessStat> stat = ReadProcessStat(child);
  if (!process.valid() || !stat.has_value() || stat->parent != parent) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

}  // namespace

StatusOr<AgentProcess> AgentProcess::Start(const AgentJob& job) {
  DS_ASSIGN_OR_RETURN(SocketPair connection, MakeSocketPair());
  AgentProcess agent;
  agent.pid_ = ::fork();
  if (agent.pid_ < 0)
    return OutOfResourcesError("no process may be started for the agent of the job");
  if (agent.pid_ == 0) {
    connection.ours.Reset();
    RunAsAgent(job, std::move(connection.theirs));
  }
  agent.connection_ = std::move(connection.ours);
  return agent;
}

std::string AgentProcess::AwaitEnd() {
  int status = 0;
  pid_t waited = -1;
  do {
    waited = ::waitpid(pid_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  const std::string process = "process " + std::to_string(pid_);
  if (waited < 0) return process + " has ended";
  if (WIFSIGNALED(status)) {
    return process + " was ended by signal " + std::to_string(WTERMSIG(status));
  }
  return process + " ended with status " + std::to_string(WEXITSTATUS(status));
}

// The children of the agent are the guardians of daemons, and theirs are the daemons
// (daemon/main.cc).
void AgentProcess::Kill() const {
  for (const pid_t guardian : ListChildren(pid_)) {
    for (const pid_t daemon : ListChildren(guardian)) KillChildOf(guardian, daemon);
  }
  ::kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
}

}  // namespace ds::cli
