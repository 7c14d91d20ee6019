#include "daemon/rank_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "daemon/clone_child.h"

namespace ds::daemon {
namespace {

// Between clone and execve the child shares this process's memory while the starting thread waits,
// so it may only make system calls, directly: no allocation, no lock, no instrumented code.
#define DS_CHILD_CODE __attribute__((no_sanitize("address", "thread", "undefined")))

constexpr int kLastSignal = 64;

// Memory nodes as the kernel takes them.
constexpr std::size_t kMaxMemoryNodes = 1024;
using NodeMask = std::array<unsigned long, kMaxMemoryNodes / (8 * sizeof(unsigned long))>;

// What the child does, in this order.
enum class ChildStep {
  kNone,
  kGroup,
  kDescriptors,
  kWorkingDirectory,
  kCores,
  kMemory,
  kLimits,
  kExecute
};

struct ChildPlan {
  const char* executable;
  char* const* argv;
  char* const* environment;
  const char* working_directory;  // null = stay
  const cpu_set_t* cores;         // null = not bound
  int memory_mode;                // of set_mempolicy; 0 = the default
  const NodeMask* memory_nodes;
  const std::uint32_t* umask;  // null = as it is
  const RankLimit* limits;
  std::size_t limit_count;
  int input, output, error, link;
  pid_t parent;
  // Written by the child, read by the parent once the child is past execve or gone.
  ChildStep failed_step = ChildStep::kNone;
  int failed_errno = 0;
};

DS_CHILD_CODE bool MoveDescriptor(int from, int to) {
  // dup3 clears close-on-exec, except that it refuses to copy a descriptor onto itself.
  return from == to ? ::syscall(SYS_fcntl, to, F_SETFD, 0) == 0
                    : ::syscall(SYS_dup3, from, to, 0) == to;
}

DS_CHILD_CODE bool SetUpDescriptors(const ChildPlan& plan) {
  // The link comes last: its number may be that of a source above.
  if (!MoveDescriptor(plan.input, STDIN_FILENO) || !MoveDescriptor(plan.output, STDOUT_FILENO) ||
      !MoveDescriptor(plan.error, STDERR_FILENO) || !MoveDescriptor(plan.link, kRankLinkFd)) {
    return false;
  }
  // Everything else is close-on-exec already; this is for descriptors of libraries that forgot, and
  // may fail on kernels before 5.9.
  ::syscall(SYS_close_range, kRankLinkFd + 1, ~0U, 0);
  return true;
}

DS_CHILD_CODE void ResetSignals() {
  struct {
    std::array<unsigned long, 8> zero;  // SIG_DFL, no flags, empty mask in the kernel's layout
  } const standard{};
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    ::syscall(SYS_rt_sigaction, signal, &standard, nullptr, sizeof(unsigned long));
  }
  const unsigned long none = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof(none));
}

DS_CHILD_CODE bool SetLimits(const ChildPlan& plan) {
  for (std::size_t i = 0; i < plan.limit_count; ++i) {
    const RankLimit& limit = plan.limits[i];
    if (::syscall(SYS_prlimit64, 0, limit.resource, &limit.amounts, nullptr) != 0) return false;
  }
  return true;
}

// Returns the step that failed; does not return otherwise.
DS_CHILD_CODE ChildStep PrepareAndExecute(const ChildPlan& plan) {
  if (::syscall(SYS_setpgid, 0, 0) != 0 ||
      ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
    return ChildStep::kGroup;
  }
  // The daemon may have died before prctl: then nobody would ever stop this rank.
  if (::syscall(SYS_getppid) != plan.parent) return ChildStep::kGroup;
  if (!SetUpDescriptors(plan)) return ChildStep::kDescriptors;
  if (plan.working_directory != nullptr && ::syscall(SYS_chdir, plan.working_directory) != 0) {
    return ChildStep::kWorkingDirectory;
  }
  if (plan.cores != nullptr &&
      ::syscall(SYS_sched_setaffinity, 0, sizeof(cpu_set_t), plan.cores) != 0) {
    return ChildStep::kCores;
  }
  if (plan.memory_mode != MPOL_DEFAULT &&
      ::syscall(SYS_set_mempolicy, plan.memory_mode, plan.memory_nodes, kMaxMemoryNodes) != 0) {
    return ChildStep::kMemory;
  }
  if (plan.umask != nullptr) ::syscall(SYS_umask, *plan.umask);
  if (!SetLimits(plan)) return ChildStep::kLimits;
  ResetSignals();
  ::syscall(SYS_execve, plan.executable, plan.argv, plan.environment);
  return ChildStep::kExecute;
}

DS_CHILD_CODE int ChildMain(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  const ChildStep failed = PrepareAndExecute(*plan);
  plan->failed_errno = errno;
  plan->failed_step = failed;
  ::syscall(SYS_exit_group, 127);
  return 127;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  // execve's interface is older than const; it does not write.
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Ends {
  UniqueFd ours;
  UniqueFd theirs;
};

StatusOr<Ends> MakeOutputPipe() {
  std::array<int, 2> fds;
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return ErrnoError(errno, "pipe");
  Ends ends{UniqueFd(fds[0]), UniqueFd(fds[1])};
  if (::fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return ends;
}

// A pipe, or /dev/null with nothing to hold on our side.
StatusOr<Ends> MakeInput(bool takes_input) {
  if (!takes_input) {
    Ends nothing{UniqueFd(), UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
    if (!nothing.theirs.valid()) return ErrnoError(errno, "/dev/null");
    return nothing;
  }
  std::array<int, 2> fds;
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return ErrnoError(errno, "pipe");
  Ends ends{UniqueFd(fds[1]), UniqueFd(fds[0])};
  if (::fcntl(fds[1], F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return ends;
}

StatusOr<Ends> MakeLink() {
  std::array<int, 2> fds;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return ErrnoError(errno, "socketpair");
  }
  Ends ends{UniqueFd(fds[0]), UniqueFd(fds[1])};
  if (::fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return ends;
}

StatusOr<cpu_set_t> CoreSet(const std::vector<std::uint32_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t core : cores) {
    if (core >= CPU_SETSIZE) {
      return InvalidArgumentError("core " + std::to_string(core) + " does not exist");
    }
    CPU_SET(core, &set);
  }
  return set;
}

StatusOr<NodeMask> MaskOf(const std::vector<std::uint32_t>& nodes) {
  constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);
  NodeMask mask{};
  for (const std::uint32_t node : nodes) {
    if (node >= kMaxMemoryNodes) {
      return InvalidArgumentError("memory node " + std::to_string(node) + " does not exist");
    }
    mask[node / kBitsPerWord] |= 1UL << (node % kBitsPerWord);
  }
  return mask;
}

Status StartError(const ChildPlan& plan, const RankCommand& command) {
  switch (plan.failed_step) {
    case ChildStep::kWorkingDirectory:
      return ErrnoError(plan.failed_errno, "working directory " + command.working_directory);
    case ChildStep::kCores:
      return ErrnoError(plan.failed_errno, "binding " + command.executable + " to its cores");
    case ChildStep::kMemory:
      return ErrnoError(plan.failed_errno,
                        "binding the memory of " + command.executable + " to its nodes");
    case ChildStep::kLimits:
      return ErrnoError(plan.failed_errno, "setting the --ulimit of " + command.executable +
                                               " (raising a hard limit takes privileges)");
    case ChildStep::kExecute:
      return ErrnoError(plan.failed_errno, "cannot execute " + command.executable);
    case ChildStep::kNone:
    case ChildStep::kGroup:
    case ChildStep::kDescriptors:
      break;
  }
  return ErrnoError(plan.failed_errno, "setting up the process of " + command.executable);
}

}  // namespace

StatusOr<RankProcess> RankProcess::Start(const RankCommand& command, int cgroup) {
  DS_ASSIGN_OR_RETURN(Ends input, MakeInput(command.takes_input));
  DS_ASSIGN_OR_RETURN(Ends output, MakeOutputPipe());
  DS_ASSIGN_OR_RETURN(Ends error, MakeOutputPipe());
  DS_ASSIGN_OR_RETURN(Ends link, MakeLink());
  DS_ASSIGN_OR_RETURN(const cpu_set_t cores, CoreSet(command.cores));
  DS_ASSIGN_OR_RETURN(const NodeMask memory_nodes, MaskOf(command.memory_nodes));
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<char*> environment = Pointers(command.environment);
  ChildPlan plan{.executable = command.executable.c_str(),
                 .argv = argv.data(),
                 .environment = environment.data(),
                 .working_directory = command.working_directory.empty()
                                          ? nullptr
                                          : command.working_directory.c_str(),
                 .cores = command.cores.empty() ? nullptr : &cores,
                 .memory_mode = command.memory_mode,
                 .memory_nodes = &memory_nodes,
                 .umask = command.umask ? &*command.umask : nullptr,
                 .limits = command.limits.data(),
                 .limit_count = command.limits.size(),
                 .input = input.theirs.get(),
                 .output = output.theirs.get(),
                 .error = error.theirs.get(),
                 .link = link.theirs.get(),
                 .parent = ::getpid()};
  RankProcess process;
  DS_ASSIGN_OR_RETURN(ClonedChild child, CloneChild(ChildMain, &plan, cgroup));
  process.pid_ = child.pid;
  process.pidfd_ = std::move(child.pidfd);
  if (plan.failed_step != ChildStep::kNone) {
    ::waitpid(process.pid_, nullptr, 0);
    return StartError(plan, command);
  }
  process.stdin_ = std::move(input.ours);
  process.stdout_ = std::move(output.ours);
  process.stderr_ = std::move(error.ours);
  process.link_ = std::move(link.ours);
  return process;
}

void RankProcess::SignalGroup(int signal) const { ::kill(-pid_, signal); }

void RankProcess::SignalProcess(int signal) const { ::kill(pid_, signal); }

RankExit RankProcess::PeekExit() const {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  RankExit exit;
  if (info.si_code == CLD_EXITED) {
    exit.exit_code = info.si_status;
  } else {
    exit.signal = info.si_status;
    exit.core_dumped = info.si_code == CLD_DUMPED;
  }
  return exit;
}

RankExit RankProcess::Reap() {
  RankExit exit = PeekExit();
  rusage usage{};
  ::wait4(pid_, nullptr, 0, &usage);
  exit.max_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  pidfd_.Reset();
  return exit;
}

}  // namespace ds::daemon
