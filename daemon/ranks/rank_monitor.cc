#include "daemon/ranks/rank_monitor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/process_stat.h"
#include "runtime/process/boot_time.h"

namespace ds::daemon {
namespace {

// Returns 0 if it cannot be read.
std::uint64_t ReadResidentBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Reads a rank's error file. The rank controls it, so reading must not block and the size is
// limited. Returns "" if there is none.
std::string ReadErrorFile(const std::string& path) {
  constexpr off_t kMostBytes = 256 * 1024;
  const UniqueFd fd(
      ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return "";
  if (!S_ISREG(info.st_mode) || info.st_size > kMostBytes) return "";
  std::string content(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t got = ::pread(fd.get(), content.data(), content.size(), 0);
  content.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return content;
}

// Lists the living processes of a session except its ended leader: "pid 12 (tee), pid 13 (sh)".
std::string NameSession(pid_t leader) {
  constexpr int kMostNames = 3;
  std::string names;
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    std::string stat;
    std::getline(std::ifstream(process->path() / "stat"), stat);
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    if (close == std::string::npos) continue;
    char state = 'Z';
    int parent = 0, group = 0, session = 0;
    std::istringstream(stat.substr(close + 1)) >> state >> parent >> group >> session;
    const std::string pid = process->path().filename();
    if (session != leader || state == 'Z' || pid == std::to_string(leader)) continue;
    if (++count > kMostNames) return names + ", ...";
    names += (names.empty() ? "pid " : ", pid ") + pid + " " + stat.substr(open, close + 1 - open);
  }
  return names.empty() ? "in a session of its own" : names;
}

}  // namespace

RankMonitor::RankMonitor(RankContext context, RankProcess process, std::string error_file,
                         std::chrono::nanoseconds grace, RankWatcher* watcher)
    : context_(context),
      process_(std::move(process)),
      error_file_(std::move(error_file)),
      watcher_(watcher),
      stdout_(context, v1::RankOutput::STDOUT, process_.TakeStdout(), [this] { MaybeFinish(); }),
      stderr_(context, v1::RankOutput::STDERR, process_.TakeStderr(), [this] { MaybeFinish(); }),
      link_(context, process_.TakeLink()),
      grace_(grace) {}

RankMonitor::~RankMonitor() {
  if (process_.starting()) context_.loop->Remove(process_.start_fd());
  context_.loop->Remove(process_.pidfd());
  if (output_deadline_) context_.loop->CancelTimer(*output_deadline_);
}

Status RankMonitor::Start() {
  return context_.loop->Add(process_.start_fd(), [this] { OnStarted(); });
}

void RankMonitor::OnStarted() {
  context_.loop->Remove(process_.start_fd());
  Status started = process_.FinishStart();
  if (started.ok()) {
    if (const int error = process_.group_errno(); error != 0) {
      watcher_->OnOutsideGroup(context_.rank, ErrnoError(error, "cgroup.procs"));
    }
    started = WatchProgram();
    if (started.ok()) return;
    StopListening();
    process_.Reap();
  }
  ended_ = true;
  watcher_->OnStartFailed(context_.rank, started);
  watcher_->OnEnded();
}

Status RankMonitor::WatchProgram() {
  v1::Event event;
  event.mutable_rank_started()->set_rank(context_.rank);
  event.mutable_rank_started()->set_pid(static_cast<std::uint32_t>(pid()));
  context_.log->Append(std::move(event));
  DS_RETURN_IF_ERROR(stdout_.Watch());
  DS_RETURN_IF_ERROR(stderr_.Watch());
  DS_RETURN_IF_ERROR(link_.Watch());
  return context_.loop->Add(process_.pidfd(), [this] { OnExit(); });
}

void RankMonitor::Signal(int signal) {
  if (!ended_) process_.SignalGroup(signal);
}

void RankMonitor::Kill() {
  if (ended_) return;
  killed_ = true;
  process_.SignalGroup(SIGKILL);
  if (exit_) Finish();
}

void RankMonitor::GiveUp() {
  if (ended_) return;
  if (process_.starting()) {
    context_.loop->Remove(process_.start_fd());
    process_.AbandonStart();
  }
  context_.loop->Remove(process_.pidfd());
  StopListening();
  ended_ = true;
  watcher_->OnEnded();
}

bool RankMonitor::SignalProcess(int signal) {
  if (ended_ || starting()) return false;
  process_.SignalProcess(signal);
  return true;
}

void RankMonitor::Resume() {
  if (starting()) return;
  stdout_.Resume();
  stderr_.Resume();
  link_.Resume();
  if (output_deadline_) AwaitOutput();  // it could not be read until now
}

void RankMonitor::OnExit() {
  const std::chrono::nanoseconds now = BootTime();
  context_.loop->Remove(process_.pidfd());
  const RankExit exit = process_.PeekExit();
  exit_ = watcher_->OnExit(exit, pid());
  exit_->set_boot_nanos(static_cast<std::uint64_t>(now.count()));
  if (exit.failed() && !exit_->stopping()) exit_->set_error_file(ReadErrorFile(error_file_));
  if (killed_ || (!stdout_.open() && !stderr_.open())) return Finish();
  // The rank's own writes are all in the pipes by now. While the log is full, they are not read.
  stdout_.Resume();
  stderr_.Resume();
  const bool well = !exit.failed() && !exit_->stopping();
  longest_silence_ = well ? std::max<std::chrono::nanoseconds>(grace_, kOutputGrace) : kOutputGrace;
  last_moment_ = std::chrono::steady_clock::now() + kMostSilences * longest_silence_;
  reported_survivors_ = !well;
  AwaitOutput();
}

void RankMonitor::AwaitOutput() {
  if (output_deadline_) context_.loop->CancelTimer(*output_deadline_);
  const auto deadline = std::chrono::steady_clock::now() + longest_silence_;
  output_deadline_ =
      context_.loop->CallAt(std::min(deadline, last_moment_), [this, before = bytes_read()] {
        output_deadline_.reset();
        OnSilenceOver(before);
      });
}

void RankMonitor::OnSilenceOver(std::uint64_t bytes_before) {
  if (context_.log->full()) {
    last_moment_ += longest_silence_;
    return AwaitOutput();
  }
  if (bytes_read() != bytes_before && std::chrono::steady_clock::now() < last_moment_) {
    ReportSurvivors();
    return AwaitOutput();
  }
  exit_->set_output_cut(true);
  Finish();
}

void RankMonitor::ReportSurvivors() {
  if (std::exchange(reported_survivors_, true)) return;
  const auto left =
      std::chrono::ceil<std::chrono::seconds>(last_moment_ - std::chrono::steady_clock::now());
  v1::Event event;
  event.mutable_rank_report()->set_rank(context_.rank);
  event.mutable_rank_report()->mutable_notice()->set_text(
      "rank " + std::to_string(context_.rank) +
      " has exited; processes that it left still write (" + NameSession(pid()) +
      ") and are ended in " + std::to_string(left.count()) + " s");
  context_.log->Append(std::move(event));
}

void RankMonitor::MaybeFinish() {
  if (exit_ && !stdout_.open() && !stderr_.open()) Finish();
}

void RankMonitor::StopListening() {
  if (output_deadline_) context_.loop->CancelTimer(*output_deadline_);
  output_deadline_.reset();
  process_.SignalGroup(SIGKILL);
  stdout_.DrainAndClose();
  stderr_.DrainAndClose();
  link_.DrainAndClose();
}

void RankMonitor::Finish() {
  StopListening();
  const RankExit exit = process_.Reap();
  ended_ = true;

  v1::Event event;
  v1::RankExited* exited = event.mutable_rank_exited();
  *exited = *std::move(exit_);
  exited->set_rank(context_.rank);
  exited->set_pid(static_cast<std::uint32_t>(pid()));
  exited->set_exit_code(exit.exit_code);
  exited->set_signal(exit.signal);
  exited->set_core_dumped(exit.core_dumped);
  exited->set_max_rss_bytes(exit.max_rss_bytes);
  exited->set_link_broken(link_.broken());
  context_.log->Append(std::move(event));
  watcher_->OnEnded();
}

v1::RankVital RankMonitor::MakeVital() {
  v1::RankVital vital;
  vital.set_rank(context_.rank);
  // A starting process shares the daemon's memory.
  vital.set_rss_bytes(ended_ || starting() ? 0 : ReadResidentBytes(pid()));
  vital.set_stopped(!ended_ && standstill_.Look(ReadProcessStat(pid())));
  return vital;
}

}  // namespace ds::daemon
