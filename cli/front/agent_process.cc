#include "cli/front/agent_process.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/agent/agent_guardian.h"
#include "runtime/base/process_stat.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

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

bool HasName(pid_t pid, std::string_view name) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  return stat.has_value() && stat->name == name;
}

// Its number may have become another process's since it was listed.
void KillChildOf(pid_t parent, pid_t child) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const std::optional<ProcessStat> stat = ReadProcessStat(child);
  if (!process.valid() || !stat.has_value() || stat->parent != parent) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

// Kills the daemon of a guardian (daemon/main.cc), which ends behind it. Ignores other processes.
void KillDaemonOf(pid_t guardian) {
  if (!HasName(guardian, "dsrun-guard")) return;
  for (const pid_t daemon : ListChildren(guardian)) KillChildOf(guardian, daemon);
}

}  // namespace

StatusOr<AgentProcess> AgentProcess::Start(const AgentJob& job) {
  DS_ASSIGN_OR_RETURN(SocketPair connection, MakeSocketPair());
  DS_ASSIGN_OR_RETURN(SocketPair handover, MakeSocketPair());
  AgentProcess agent;
  agent.pid_ = ::fork();
  if (agent.pid_ < 0)
    return OutOfResourcesError("no process may be started for the agent of the job");
  if (agent.pid_ == 0) {
    connection.ours.Reset();
    handover.ours.Reset();
    RunGuardian(job, {std::move(connection.theirs), std::move(handover.theirs)});
  }
  agent.connection_ = std::move(connection.ours);
  agent.handover_ = std::move(handover.ours);
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

// The guardian is stopped first, because it starts another agent. Below it are agents, and the
// guardians of daemons below the agent; after an agent was killed, they are the guardian's own.
void AgentProcess::Kill() const {
  ::kill(pid_, SIGSTOP);  // not reaped yet, so the number is still its own
  for (const pid_t child : ListChildren(pid_)) {
    KillDaemonOf(child);
    for (const pid_t grandchild : ListChildren(child)) KillDaemonOf(grandchild);
    if (HasName(child, "dsrun-agent")) KillChildOf(pid_, child);
  }
  ::kill(-pid_, SIGKILL);  // agents are in its group
  ::kill(pid_, SIGKILL);
}

}  // namespace ds::cli
