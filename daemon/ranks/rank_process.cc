#include "daemon/ranks/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/inspect/mounts.h"
#include "runtime/base/number_list.h"
#include "runtime/process/pipe.h"
#include "runtime/process/unix_socket.h"

namespace ds::daemon {
namespace {

std::vector<char*> MakePointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  // execve's signature lacks const; it does not write.
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The daemon's end is non-blocking.
StatusOr<Pipe> MakeOutput() {
  DS_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  if (::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return pipe;
}

// Returns a pipe, or /dev/null without a descriptor for the daemon.
StatusOr<Pipe> MakeInput(bool takes_input) {
  if (!takes_input) {
    Pipe nothing{UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), UniqueFd()};
    if (!nothing.read.valid()) return ErrnoError(errno, "/dev/null");
    return nothing;
  }
  DS_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  if (::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return pipe;
}

// The write end does not have a number that a rank uses.
StatusOr<Pipe> MakeLeaving() {
  DS_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  pipe.write.Reset(::fcntl(pipe.write.get(), F_DUPFD_CLOEXEC, kRankLinkFd + 1));
  if (!pipe.write.valid()) return ErrnoError(errno, "fcntl");
  return pipe;
}

StatusOr<SocketPair> MakeLink() {
  DS_ASSIGN_OR_RETURN(SocketPair ends, MakeSocketPair());
  if (::fcntl(ends.ours.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoError(errno, "fcntl");
  return ends;
}

StatusOr<cpu_set_t> MakeCoreSet(const std::vector<std::uint32_t>& cores) {
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

StatusOr<NodeMask> MakeNodeMask(const std::vector<std::uint32_t>& nodes) {
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

}  // namespace

// A rank between clone and execve, with all data that its process needs until then.
class RankProcess::Starting {
 public:
  explicit Starting(RankCommand command)
      : command_(std::move(command)),
        argv_(MakePointers(command_.argv)),
        environment_(MakePointers(command_.environment)) {}

  // Fills in `process`.
  Status Clone(int group, RankProcess* process);
  int fd() const { return left_.get(); }
  // Returns why the program does not run. Blocks until the process has left this memory.
  Status Finish() {
    clone_->AwaitLeaving();
    return child_.failed_step == ChildStep::kNone ? OkStatus() : MakeStartError(child_, command_);
  }
  std::string Describe() const;
  int group_errno() const { return child_.group_errno; }

 private:
  Status FillIn();

  const RankCommand command_;
  const std::vector<char*> argv_;
  const std::vector<char*> environment_;
  cpu_set_t cores_{};
  RankChild child_;
  UniqueFd left_;                       // the read end of child_.leaving
  std::unique_ptr<ClonedChild> clone_;  // last: it waits until the child has left the others
};

Status RankProcess::Starting::FillIn() {
  DS_ASSIGN_OR_RETURN(cores_, MakeCoreSet(command_.cores));
  DS_ASSIGN_OR_RETURN(child_.memory_nodes, MakeNodeMask(command_.memory_nodes));
  child_.executable = command_.executable.c_str();
  child_.argv = argv_.data();
  child_.environment = environment_.data();
  if (!command_.working_directory.empty()) {
    child_.working_directory = command_.working_directory.c_str();
  }
  if (!command_.cores.empty()) child_.cores = &cores_;
  child_.settings = command_.settings;
  child_.limits = command_.limits.data();
  child_.limit_count = command_.limits.size();
  child_.parent = ::getpid();
  return OkStatus();
}

Status RankProcess::Starting::Clone(int group, RankProcess* process) {
  DS_RETURN_IF_ERROR(FillIn());
  // The child gets copies of these at once, so the child's ends may be closed when this returns.
  DS_ASSIGN_OR_RETURN(Pipe input, MakeInput(command_.takes_input));
  DS_ASSIGN_OR_RETURN(Pipe output, MakeOutput());
  DS_ASSIGN_OR_RETURN(Pipe error, MakeOutput());
  DS_ASSIGN_OR_RETURN(SocketPair link, MakeLink());
  DS_ASSIGN_OR_RETURN(Pipe leaving, MakeLeaving());
  child_.group = group;
  child_.input = input.read.get();
  child_.output = output.write.get();
  child_.error = error.write.get();
  child_.link = link.theirs.get();
  child_.leaving = leaving.write.get();
  DS_ASSIGN_OR_RETURN(clone_, ClonedChild::Start(&child_));
  left_ = std::move(leaving.read);
  process->pid_ = clone_->pid();
  process->pidfd_ = clone_->TakePidfd();
  process->stdin_ = std::move(input.write);
  process->stdout_ = std::move(output.read);
  process->stderr_ = std::move(error.read);
  process->link_ = std::move(link.ours);
  return OkStatus();
}

std::string RankProcess::Starting::Describe() const {
  const bool executes = child_.GetStep() == ChildStep::kExecute;
  const std::string& path = executes ? command_.real_executable : command_.working_directory;
  return (executes ? "execve of " : "entering the working directory ") + WithFileSystem(path);
}

RankProcess::RankProcess() = default;
RankProcess::~RankProcess() = default;
RankProcess::RankProcess(RankProcess&& other) noexcept = default;

StatusOr<RankProcess> RankProcess::Begin(RankCommand command, int group) {
  RankProcess process;
  auto starting = std::make_unique<Starting>(std::move(command));
  DS_RETURN_IF_ERROR(starting->Clone(group, &process));
  process.starting_ = std::move(starting);
  return process;
}

int RankProcess::start_fd() const { return starting_->fd(); }

Status RankProcess::FinishStart() {
  const Status status = starting_->Finish();
  group_errno_ = starting_->group_errno();
  starting_.reset();
  if (!status.ok()) Reap();
  return status;
}

std::string RankProcess::DescribeStart() const { return starting_->Describe(); }

void RankProcess::AbandonStart() { static_cast<void>(starting_.release()); }

void RankProcess::SignalGroup(int signal) const {
  if (::kill(-pid_, signal) != 0) ::kill(pid_, signal);
}

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

namespace {

namespace fs = std::filesystem;

// The kernel reads the same number of bytes of a script's first line.
constexpr std::size_t kFirstLineBytes = 256;

std::string ReadFirstLine(const fs::path& path) {
  // Non-blocking: another process may hold a lease on the file.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::array<char, kFirstLineBytes> buffer{};
  const ssize_t got = file.valid() ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  const std::string text(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return text.substr(0, text.find('\n'));
}

// The file exists, so ENOENT is about a file that it needs, and ENOEXEC about its format.
std::string ExplainExecError(const fs::path& path, int error) {
  const std::string line = ReadFirstLine(path);
  if (error == ENOEXEC) {
    return line.starts_with(
               "\x7F"
               "ELF")
               ? " (a program for another kind of machine?)"
               : " (a script needs '#!' and its interpreter in the first line, for example "
                 "#!/bin/sh)";
  }
  if (error != ENOENT) return "";
  if (!line.starts_with("#!")) {
    return " (the file is there; the loader it was linked for is not on this host)";
  }
  if (line.ends_with('\r')) {
    return " (its first line ends as on Windows: sed -i 's/\\r$//' " + path.filename().string() +
           ")";
  }
  const std::size_t start = line.find_first_not_of(" \t", 2);
  const std::string interpreter =
      start == std::string::npos ? ""
                                 : line.substr(start, line.find_first_of(" \t", start) - start);
  return " (its first line names the interpreter " + interpreter + ", which is not on this host)";
}

Status MakeExecError(const RankCommand& command, int error) {
  const Status status = ErrnoError(error, "cannot execute " + command.executable);
  const fs::path path = fs::path(command.working_directory) / command.executable;
  return FailedPreconditionError(status.message() + ExplainExecError(path, error));
}

}  // namespace

Status MakeStartError(const RankChild& child, const RankCommand& command) {
  switch (child.failed_step) {
    case ChildStep::kWorkingDirectory:
      return ErrnoError(child.failed_errno, "working directory " + command.working_directory);
    case ChildStep::kCores:
      return ErrnoError(child.failed_errno,
                        "binding " + command.executable + " to cores " +
                            FormatNumberList({command.cores.begin(), command.cores.end()}) +
                            "; this host allows some of them only, or none");
    case ChildStep::kMemory:
      return ErrnoError(child.failed_errno,
                        "binding the memory of " + command.executable + " to its nodes");
    case ChildStep::kLimits:
      return ErrnoError(child.failed_errno, "setting the --ulimit of " + command.executable +
                                                " (raising a hard limit takes privileges)");
    case ChildStep::kExecute:
      return MakeExecError(command, child.failed_errno);
    case ChildStep::kNone:
    case ChildStep::kSession:
    case ChildStep::kDescriptors:
      break;
  }
  return ErrnoError(child.failed_errno, "setting up the process of " + command.executable);
}

}  // namespace ds::daemon
