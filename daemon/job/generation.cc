#include "daemon/job/generation.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "daemon/host/orphans.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/base/process_stat.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {
namespace {

// The capacity of a pipe, so that one read empties it.
constexpr std::size_t kReadBytes = 64 * 1024;

// Returns the time of the clock that the loop's timers use.
std::chrono::nanoseconds Now() { return EventLoop::TimePoint::clock::now().time_since_epoch(); }

Status WriteJobFile(const std::filesystem::path& folder, const v1::JobFile& file) {
  const std::string& name = file.name();
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return InvalidArgumentError("job file '" + name + "': not a plain file name");
  }
  const std::string path = (folder / name).string();
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoError(errno, path);
  return WriteAll(fd.get(), file.content(), path);
}

// Returns "" if it cannot be read.
std::string ReadProcFile(pid_t pid, const char* name) {
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/" + name), text);
  return text;
}

// Returns "rank 3, process 123 (python), state D in nfs_wait_bit_killable".
std::string DescribeProcess(pid_t pid, const std::string& what) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  const std::string waits_in = ReadProcFile(pid, "wchan");  // "0": nowhere
  std::string text = what + ", process " + std::to_string(pid) + " (" + ReadProcFile(pid, "comm") +
                     "), state " + (stat ? stat->state : '?');
  if (!waits_in.empty() && waits_in != "0") text += " in " + waits_in;
  return text;
}

Status AddContext(const Status& status, const v1::RankSpec& spec) {
  return status.WithContext("rank " + std::to_string(spec.rank()));
}

}  // namespace

StatusOr<GenerationFiles> GenerationFiles::Create(const std::filesystem::path& parent,
                                                  const v1::LaunchRequest& request) {
  const auto path = parent / ("generation-" + std::to_string(request.generation()));
  if (::mkdir(path.c_str(), 0700) != 0) return ErrnoError(errno, path.string());
  GenerationFiles files(path);
  for (const v1::JobFile& file : request.files()) DS_RETURN_IF_ERROR(WriteJobFile(path, file));
  return files;
}

GenerationFiles::~GenerationFiles() {
  std::error_code ignored;  // a rank may have left files that cannot be removed
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

StatusOr<std::chrono::nanoseconds> ToDuration(std::string_view field, double seconds,
                                              double shortest) {
  constexpr double kLongest = 24 * 3600;
  if (!(seconds >= shortest && seconds <= kLongest)) {
    std::ostringstream message;
    message << field << " must be between " << shortest << " and " << kLongest;
    return InvalidArgumentError(message.str());
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

StatusOr<std::unique_ptr<Generation>> Generation::Create(EventLoop* loop,
                                                         const v1::LaunchRequest& request,
                                                         Options options) {
  if (request.ranks().empty()) return InvalidArgumentError("a launch of no ranks");
  DS_ASSIGN_OR_RETURN(const auto grace, ToDuration("grace_seconds", request.grace_seconds()));
  return std::unique_ptr<Generation>(
      new Generation(loop, request.generation(), grace, std::move(options)));
}

Status Generation::Start(const v1::LaunchRequest& request) {
  Status status = StartProcesses(request);
  if (status.ok()) status = StartMonitors();
  if (status.ok()) return status;
  for (const auto& rank : ranks_) rank->Abort();
  if (cgroup_) cgroup_->KillAll();
  return status;
}

Generation::Generation(EventLoop* loop, std::uint32_t number, std::chrono::nanoseconds grace,
                       Options options)
    : loop_(loop),
      number_(number),
      grace_(grace),
      options_(std::move(options)),
      buffer_(kReadBytes) {}

Generation::~Generation() {
  if (ladder_timer_) loop_->CancelTimer(*ladder_timer_);
}

StatusOr<std::vector<RankCommand>> Generation::MakeCommands(const v1::LaunchRequest& request) {
  std::vector<RankCommand> commands;
  std::unordered_set<std::uint32_t> seen;
  for (int i = 0; i < request.ranks_size(); ++i) {
    if (!seen.insert(request.ranks(i).rank()).second) {
      return AddContext(InvalidArgumentError("named twice"), request.ranks(i));
    }
    StatusOr<RankCommand> command = MakeRankCommand(request, i, options_.host);
    if (!command.ok()) return AddContext(command.status(), request.ranks(i));
    commands.push_back(std::move(command).value());
  }
  return commands;
}

void Generation::MakeCgroup(const std::string& job_id) {
  // Two daemons of one job may share a host. A cgroup's name must not contain a slash.
  std::string name = job_id + "-" + std::to_string(::getpid()) + "-" + std::to_string(number_);
  std::replace(name.begin(), name.end(), '/', '_');
  auto cgroup = OwnedCgroup::Create(options_.evidence->cgroups().unified, name);
  if (cgroup.ok()) cgroup_ = *std::move(cgroup);
}

Status Generation::StartProcesses(const v1::LaunchRequest& request) {
  // The job can run without error files, so their failure alone is ignored.
  StatusOr<GenerationFiles> files = GenerationFiles::Create(options_.folder, request);
  if (!files.ok() && !request.files().empty()) return files.status();
  if (files.ok()) {
    options_.host.job_directory = files->path().string();
    files_.emplace(std::move(files).value());
  }
  DS_ASSIGN_OR_RETURN(const std::vector<RankCommand> commands, MakeCommands(request));
  MakeCgroup(request.job_id());
  const int cgroup = cgroup_ ? cgroup_->fd() : -1;
  DS_ASSIGN_OR_RETURN(std::vector<RankProcess> processes, RankProcess::StartAll(commands, cgroup));
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (UniqueFd input = processes[i].TakeStdin(); input.valid()) {
      input_ = std::make_shared<RankInput>(std::move(input));
    }
    const RankContext context{loop_, options_.log.get(), &values_, buffer_, commands[i].rank};
    ranks_.push_back(std::make_unique<RankMonitor>(context, std::move(processes[i]),
                                                   commands[i].error_file, grace_, this));
  }
  return OkStatus();
}

Status Generation::StartMonitors() {
  for (const auto& rank : ranks_) DS_RETURN_IF_ERROR(rank->Start());
  running_ = ranks_.size();
  return OkStatus();
}

std::vector<pid_t> Generation::pids() const {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_) pids.push_back(rank->pid());
  return pids;
}

bool Generation::HasRank(pid_t pid) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [pid](const auto& rank) { return !rank->ended() && rank->pid() == pid; });
}

int Generation::Stop(std::chrono::nanoseconds grace, v1::StopCause cause) {
  if (!running() && !in_grace()) return 0;
  const StopLadder::Step step = ladder_.Stop(grace, cause, Now());
  SetLadderTimer();
  if (step == StopLadder::Step::kNothing) return 0;
  const int signalled = SignalAll(SIGTERM);
  SignalAll(SIGCONT);  // a stopped process does not handle SIGTERM
  std::vector<pid_t> unreaped;
  for (const auto& rank : ranks_) {
    if (!rank->ended()) unreaped.push_back(rank->pid());
  }
  TerminateStrays(unreaped);
  return signalled;
}

void Generation::SetLadderTimer() {
  if (ladder_timer_) loop_->CancelTimer(*ladder_timer_);
  ladder_timer_.reset();
  const auto next = ladder_.next();
  if (!next) return;
  ladder_timer_ = loop_->CallAt(EventLoop::TimePoint(*next), [this] { OnLadderTime(); });
}

void Generation::OnLadderTime() {
  const StopLadder::Step step = ladder_.OnTime(Now());
  SetLadderTimer();  // first, because the step may be the last
  if (step == StopLadder::Step::kGiveUp) return GiveUp();
  if (step != StopLadder::Step::kKill) return;
  KillAll();
  if (!running()) options_.on_ranks_ended();
}

void Generation::AwaitEnd() {
  ladder_.AwaitEnd(Now());
  SetLadderTimer();
}

void Generation::GiveUp() {
  for (const pid_t child : ListOwnChildren()) {
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [child](const auto& each) { return each->pid() == child; });
    unended_.push_back(DescribeProcess(child, rank == ranks_.end()
                                                  ? "a process left by a rank"
                                                  : "rank " + std::to_string((*rank)->rank())));
    LogWarning("killed and given up: " + unended_.back());
  }
  if (!running()) return options_.on_ranks_ended();
  for (const auto& rank : ranks_) rank->GiveUp();  // it calls on_ranks_ended
}

int Generation::SignalAll(int signal) {
  int count = 0;
  for (const auto& rank : ranks_) {
    if (rank->ended()) continue;
    rank->Signal(signal);
    ++count;
  }
  return count;
}

int Generation::Forward(int signal) {
  int count = 0;
  for (const auto& rank : ranks_) {
    if (rank->ended()) continue;
    rank->SignalProcess(signal);
    ++count;
  }
  return count;
}

Status Generation::Share(const v1::ShareRequest& request) {
  for (const v1::SharedValue& each : request.values()) {
    DS_RETURN_IF_ERROR(values_.Put(each.key(), each.value()));
  }
  return OkStatus();
}

void Generation::KillAll() {
  killed_ = true;
  for (const auto& rank : ranks_) rank->Kill();
  if (cgroup_) cgroup_->KillAll();
}

v1::RankExited Generation::OnExit(const RankExit& exit, pid_t pid) {
  // A stop sends SIGKILL only after its grace; before that, another process sent it.
  const bool killed_by_others = exit.signal == SIGKILL && !killed_;
  const bool stopping = ladder_.cause() != v1::STOP_NONE && !killed_by_others;
  v1::RankExited known;
  if (exit.failed() && !stopping) known = options_.evidence->Collect(exit, pid);
  known.set_stopping(stopping);
  // A stop in progress keeps its own grace.
  if (exit.failed() && ladder_.cause() == v1::STOP_NONE) Stop(grace_, v1::STOP_RANK_FAILED);
  return known;
}

void Generation::OnEnded() {
  if (--running_ > 0) return;
  if (cgroup_ && !in_grace()) cgroup_->KillAll();
  options_.on_ranks_ended();
}

void Generation::End() {
  ladder_.End();
  SetLadderTimer();
  files_.reset();
  cgroup_.reset();
  v1::Event event;
  event.mutable_generation_ended()->set_stop_cause(ladder_.cause());
  for (const std::string& each : unended_) event.mutable_generation_ended()->add_unended(each);
  options_.log->Append(std::move(event));
  options_.log->Close();
}

void Generation::Resume() {
  for (const auto& rank : ranks_) rank->Resume();
}

void Generation::AppendHeartbeat() {
  v1::Event event;
  v1::Heartbeat* heartbeat = event.mutable_heartbeat();
  heartbeat->set_monotonic_nanos(Clock::System().Now().count());
  options_.evidence->Sample();
  for (const auto& rank : ranks_) *heartbeat->add_ranks() = rank->MakeVital();
  options_.log->Append(std::move(event));
}

}  // namespace ds::daemon
