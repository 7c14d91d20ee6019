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

}  // namespace

Status MakeRefusal(const Status& error) {
  const bool like_silence =
      error.code() == StatusCode::kUnavailable || error.code() == StatusCode::kDeadlineExceeded;
  return like_silence ? FailedPreconditionError(error.message()) : error;
}

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
  DS_ASSIGN_OR_RETURN(const auto start, ToDuration("start_seconds", request.start_seconds()));
  std::unique_ptr<Generation> generation(
      new Generation(loop, request.generation(), grace, std::move(options)));
  generation->start_limit_ = start;
  DS_RETURN_IF_ERROR(generation->MakeFiles(request));
  return generation;
}

Status Generation::Start(const std::string& job_id, std::vector<RankCommand> commands) {
  MakeCgroup(job_id);
  DS_RETURN_IF_ERROR(StartProcesses(std::move(commands)));
  LimitStart();
  return OkStatus();
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
  if (start_timer_) loop_->CancelTimer(*start_timer_);
}

void Generation::MakeCgroup(const std::string& job_id) {
  // Two daemons of one job may share a host. A cgroup's name must not contain a slash.
  std::string name = job_id + "-" + std::to_string(::getpid()) + "-" + std::to_string(number_);
  std::replace(name.begin(), name.end(), '/', '_');
  auto cgroup = OwnedCgroup::Create(options_.evidence->cgroups().unified, name);
  if (cgroup.ok()) cgroup_ = *std::move(cgroup);
}

Status Generation::MakeFiles(const v1::LaunchRequest& request) {
  // The job can run without error files, so their failure alone is ignored.
  StatusOr<GenerationFiles> files = GenerationFiles::Create(options_.folder, request);
  if (!files.ok() && !request.files().empty()) return files.status();
  if (files.ok()) {
    options_.host.job_directory = files->path().string();
    files_.emplace(std::move(files).value());
  }
  return OkStatus();
}

Status Generation::StartProcesses(std::vector<RankCommand> commands) {
  UniqueFd group;
  if (cgroup_) group.Reset(::openat(cgroup_->fd(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
  for (RankCommand& command : commands) {
    const std::uint32_t rank = command.rank;
    const Status started = StartProcess(std::move(command), group.get());
    if (started.ok()) continue;
    if (ranks_.empty()) return started.WithContext("rank " + std::to_string(rank));
    OnStartFailed(rank, started);
    return OkStatus();
  }
  return OkStatus();
}

Status Generation::StartProcess(RankCommand command, int group) {
  const RankContext context{loop_, options_.log.get(), &values_, buffer_, command.rank};
  const std::string error_file = command.error_file;
  DS_ASSIGN_OR_RETURN(RankProcess process, RankProcess::Begin(std::move(command), group));
  UniqueFd input = process.TakeStdin();
  auto rank = std::make_unique<RankMonitor>(context, std::move(process), error_file, grace_, this);
  if (const Status watched = rank->Start(); !watched.ok()) {
    rank->Kill();
    return watched;
  }
  if (input.valid()) input_ = std::make_shared<RankInput>(std::move(input));
  ranks_.push_back(std::move(rank));
  ++running_;
  return OkStatus();
}

void Generation::LimitStart() {
  if (start_limit_ == start_limit_.zero()) return;
  start_timer_ = loop_->CallAt(created_ + start_limit_, [this] {
    start_timer_.reset();
    OnStartLimit();
  });
}

void Generation::OnStartLimit() {
  const auto starting = [](const auto& rank) { return rank->starting(); };
  const auto first = std::find_if(ranks_.begin(), ranks_.end(), starting);
  if (first == ranks_.end()) return;
  const auto others = std::count_if(first + 1, ranks_.end(), starting);
  std::ostringstream message;
  message << (*first)->DescribeStart() << " has not ended for "
          << std::chrono::duration<double>(start_limit_).count() << " s (--start_timeout)";
  if (others > 0) message << ", nor have those of " << others << " other ranks of this host";
  OnStartFailed((*first)->rank(), DeadlineExceededError(message.str()));
}

// The ranks are killed one by one then, and what they leave by EndOrphans.
void Generation::OnOutsideGroup(std::uint32_t rank, const Status& why) {
  if (!std::exchange(holds_all_, false)) return;
  LogWarning("rank " + std::to_string(rank) +
             " is outside the control group of its job: " + why.message());
}

void Generation::OnStartFailed(std::uint32_t rank, const Status& why) {
  if (ladder_.cause() != v1::STOP_NONE) return;
  const Status refusal = MakeRefusal(why.WithContext("rank " + std::to_string(rank)));
  v1::Event event;
  event.mutable_start_failed()->set_rank(rank);
  event.mutable_start_failed()->set_code(static_cast<std::int32_t>(refusal.code()));
  event.mutable_start_failed()->set_message(refusal.message());
  options_.log->Append(std::move(event));
  Stop(std::chrono::nanoseconds(0), v1::STOP_START_FAILED);
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
    if (rank->SignalProcess(signal)) ++count;
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
  const std::chrono::duration<double> age = EventLoop::TimePoint::clock::now() - created_;
  for (const auto& rank : ranks_) {
    *heartbeat->add_ranks() = rank->MakeVital();
    if (!rank->starting()) continue;
    v1::StartingRank* const starting = heartbeat->add_starting();
    starting->set_rank(rank->rank());
    starting->set_doing(rank->DescribeStart());
    starting->set_seconds(age.count());
  }
  options_.log->Append(std::move(event));
}

}  // namespace ds::daemon
