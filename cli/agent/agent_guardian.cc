#include "cli/agent/agent_guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "cli/agent/frames.h"
#include "cli/job/final_status.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/verdict/verdict_message.h"
#include "runtime/process/exit_process.h"
#include "runtime/process/pipe.h"
#include "runtime/process/thread_quota.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kLogMode = 0600;
// More often an agent is not killed from outside: it fails.
constexpr int kMostSuccessors = 10;

// A file that cannot be opened loses only messages of libraries.
UniqueFd OpenAgentLog(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kLogMode));
}

void LeaveTerminal(int log) {
  ::setsid();
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(log >= 0 ? log : null.get(), fd);
}

void RemoveEmptyLog(const fs::path& path) {
  struct stat info {};
  const bool is_empty = ::stat(path.c_str(), &info) == 0 && info.st_size == 0;
  if (is_empty) ::unlink(path.c_str());
}

// Does what an agent would do that does not start its job.
[[noreturn]] void Refuse(const AgentJob& job, const Status& why, const UniqueFd& first_front) {
  Verdict verdict = MakeStartVerdict(why);
  verdict.exit_code = FinalStatus(verdict, job.plan.flags.exit_codes);
  static_cast<void>(job.run_directory->WriteVerdict(verdict));
  v1::FromAgent message;
  message.mutable_ended()->set_exit_code(verdict.exit_code);
  *message.mutable_ended()->mutable_verdict() = MakeVerdictMessage(verdict);
  const Frame frame = MakeFrame(message);
  static_cast<void>(::send(first_front.get(), frame->data(), frame->size(), MSG_NOSIGNAL));
  RemoveEmptyLog(job.run_directory->path() / "agent.log");
  std::_Exit(verdict.exit_code);
}

class Guardian {
 public:
  Guardian(const AgentJob& job, GuardianChannels channels, AgentMeans means)
      : job_(job),
        channels_(std::move(channels)),
        means_(std::move(means)),
        log_(job.run_directory->path() / "agent.log") {}

  [[noreturn]] void Run();

 private:
  [[noreturn]] void RunAgentHere(UniqueFd released);
  // Starts an agent and returns its wait status.
  int RunOneAgent();
  int Await(pid_t agent, UniqueFd released);
  bool CanBeTakenOver() const;
  bool ConnectFront();

  const AgentJob& job_;
  GuardianChannels channels_;
  AgentMeans means_;
  const fs::path log_;
};

void Guardian::RunAgentHere(UniqueFd released) {
  ::prctl(PR_SET_NAME, "dsrun-agent", 0, 0, 0);
  channels_.handover.Reset();
  means_.released = std::move(released);
  RunAgent(job_, &means_, std::move(channels_.first_front), [&](int status) {
    RemoveEmptyLog(log_);
    ExitProcess(status);
  });
  std::_Exit(EXIT_FAILURE);
}

int Guardian::RunOneAgent() {
  StatusOr<Pipe> released = MakePipe();
  const pid_t agent = released.ok() ? ::fork() : -1;
  if (agent < 0) {
    Refuse(job_, OutOfResourcesError("no process may be started for the agent of the job"),
           channels_.first_front);
  }
  if (agent == 0) {
    released->read.Reset();
    RunAgentHere(std::move(released->write));
  }
  channels_.first_front.Reset();
  released->write.Reset();
  return Await(agent, std::move(released->read));
}

// The pipe ends with the agent, or after a byte (AgentMeans::released).
int Guardian::Await(pid_t agent, UniqueFd released) {
  char byte = 0;
  ssize_t count = -1;
  do {
    count = ::read(released.get(), &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 1) means_.controller.write.Reset();
  int status = 0;
  while (::waitpid(agent, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool Guardian::CanBeTakenOver() const {
  if (!means_.controller.write.valid()) return false;
  const std::optional<v1::JobState> state = means_.memory.Read();
  return state.has_value() &&
         std::none_of(state->daemons().begin(), state->daemons().end(),
                      [](const v1::DaemonState& daemon) { return daemon.bound(); });
}

// The front may be gone: then the agent sees that at once.
bool Guardian::ConnectFront() {
  StatusOr<SocketPair> connection = MakeSocketPair();
  if (!connection.ok()) return false;
  static_cast<void>(SendDescriptor(channels_.handover.get(), connection->ours));
  channels_.first_front = std::move(connection->theirs);
  return true;
}

void Guardian::Run() {
  int status = RunOneAgent();
  for (int i = 0; i < kMostSuccessors && WIFSIGNALED(status); ++i) {
    if (!CanBeTakenOver() || !ConnectFront()) break;
    means_.killed_by = WTERMSIG(status);
    status = RunOneAgent();
  }
  EndLikeChild(status);
}

}  // namespace

void RunGuardian(const AgentJob& job, GuardianChannels channels) {
  {
    const UniqueFd log = OpenAgentLog(job.run_directory->path() / "agent.log");
    LeaveTerminal(log.get());
  }
  ::prctl(PR_SET_NAME, "dsrun-keeper", 0, 0, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // of the daemons that a killed agent has left
  StatusOr<AgentMeans> means = AgentMeans::Make(job.plan);
  if (!means.ok()) Refuse(job, means.status(), channels.first_front);
  Guardian(job, std::move(channels), *std::move(means)).Run();
}

}  // namespace ds::cli
