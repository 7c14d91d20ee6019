#include "runtime/comm/shm/group_wait.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <utility>

#include "runtime/base/process_stat.h"
#include "runtime/comm/shm/wait_timeout.h"

namespace ds::comm {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kSpinTime{50};
constexpr std::chrono::milliseconds kCheckPeersEvery{100};
constexpr std::chrono::microseconds kMinSleep{1};

// FailureKind: stored in the header in the bits above the rank at fault.
enum class FailureKind : std::uint64_t {
  kNone = 0,
  kEnded = 1,
  kLeft = 2,
  kTimedOut = 3,
  kMismatch = 4,
  kAborted = 5,
  kNotAtBarrier = 6,  // in time; other ranks may be missing too
};

std::uint64_t Pack(FailureKind kind, int rank) {
  return static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint32_t>(rank);
}
FailureKind KindOf(std::uint64_t failure) { return static_cast<FailureKind>(failure >> 32); }
int RankOfFailure(std::uint64_t failure) { return static_cast<int>(failure & 0xffffffffu); }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool HasEnoughCores(int ranks) {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) >= ranks;
}

// Blocks while `word`, which several processes may map, equals `expected`, until FutexWakeAll or
// `timeout`. May return spuriously: the caller checks the word again.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
               std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative = {.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  // All results (woken, timed out, interrupted, word already changed) mean "check again".
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void FutexWakeAll(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ProcessId ProcessId::Of(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  return {.pid = pid, .started = stat.has_value() ? stat->start : 0};
}

bool PeerWatch::HasEnded(int rank, const ProcessId& process) {
  UniqueFd& pidfd = pidfds_[static_cast<std::size_t>(rank)];
  if (!pidfd.valid()) {
    UniqueFd opened(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    if (!opened.valid()) return errno == ESRCH;
    const std::uint64_t started = ProcessId::Of(process.pid).started;
    if (started != 0 && process.started != 0 && started != process.started) return true;
    pidfd = std::move(opened);
  }
  pollfd ended = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 1;
}

GroupWait::GroupWait(GroupLayout layout, RankOf self, const Options& options)
    : layout_(layout),
      self_(self),
      timeout_(options.timeout),
      on_absence_(options.on_absence),
      names_(options.names),
      has_enough_cores_(HasEnoughCores(self.size)),
      watch_(self.size) {}

Status GroupWait::WaitAtBarrier(std::uint64_t number, const CallSignature& call) {
  DS_RETURN_IF_ERROR(CheckGroup(call));
  GroupHeader& header = layout_.header();
  const auto ranks = static_cast<std::uint64_t>(self_.size);
  const auto target = static_cast<std::uint32_t>(number);
  const bool is_last =
      header.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks * number;
  if (is_last) {
    header.interval.store(target, std::memory_order_seq_cst);
    Ring(header.at_barrier);
  }
  // This is set after the barrier itself: a rank that dies in between counts as not arrived.
  layout_.line(self_.rank).arrived.store(number, std::memory_order_release);
  if (is_last) return OkStatus();
  return WaitUntilOver({.bell = header.at_barrier,
                        .is_over = [&] { return HasReached(header.interval, target); },
                        .barrier = number,
                        .peers = {},
                        .call = call});
}

Status GroupWait::WaitForPeers(std::span<const int> peers, const CallSignature& call,
                               const std::function<bool()>& is_over) {
  DS_RETURN_IF_ERROR(CheckGroup(call));
  return WaitUntilOver({.bell = layout_.line(self_.rank).bell,
                        .is_over = is_over,
                        .barrier = 0,
                        .peers = peers,
                        .call = call});
}

Status GroupWait::CheckForFailure(std::span<const int> peers, const CallSignature& call) {
  return CheckPeers({.bell = layout_.line(self_.rank).bell,
                     .is_over = [] { return false; },
                     .barrier = 0,
                     .peers = peers,
                     .call = call});
}

void GroupWait::RingBellOf(int rank) { Ring(layout_.line(rank).bell); }

// A sleeper increments `sleepers` and then checks its condition; a ringer changes the condition and
// then checks `sleepers`. At least one of the two sees the other's change.
void GroupWait::Ring(Bell& bell) {
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(bell.rings);
}

void GroupWait::RingAll() {
  Ring(layout_.header().at_barrier);
  Ring(layout_.header().at_end);
  for (int rank = 0; rank < self_.size; ++rank) RingBellOf(rank);
}

Status GroupWait::WaitUntilOver(const Wait& wait) {
  if (wait.is_over() || Spin(wait)) return OkStatus();
  wait.bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status = Sleep(wait);
  wait.bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

// Returns true when the wait is over. Does not spin on a core that an awaited rank needs, which
// would only delay that rank.
bool GroupWait::Spin(const Wait& wait) {
  if (!has_enough_cores_) return false;
  const auto core = static_cast<std::uint32_t>(sched_getcpu());
  layout_.line(self_.rank).core.store(core, std::memory_order_relaxed);
  for (int rank = 0; rank < self_.size; ++rank) {
    const bool is_here = layout_.line(rank).core.load(std::memory_order_relaxed) == core;
    if (is_here && rank != self_.rank && IsAwaited(wait, rank)) return false;
  }
  const auto end = steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      Pause();
      if (wait.is_over()) return true;
    }
  } while (steady_clock::now() < end);
  return false;
}

Status GroupWait::Sleep(const Wait& wait) {
  WaitTimeout wait_timeout(timeout_, kCheckPeersEvery, steady_clock::now());
  bool is_long = false;
  while (true) {
    const std::uint32_t heard = wait.bell.rings.load(std::memory_order_seq_cst);
    if (wait.is_over()) return OkStatus();
    DS_RETURN_IF_ERROR(CheckGroup(wait.call));
    FutexWait(wait.bell.rings, heard,
              std::max<std::chrono::nanoseconds>(wait_timeout.until_look(), kMinSleep));
    if (wait.is_over()) return OkStatus();
    DS_RETURN_IF_ERROR(CheckPeers(wait));
    wait_timeout.Look(steady_clock::now());
    if (wait_timeout.is_half_over() && !std::exchange(is_long, true) && on_long_wait_)
      on_long_wait_();
    if (wait_timeout.is_over()) DS_RETURN_IF_ERROR(NameMissing(wait));
  }
}

bool GroupWait::IsAwaited(const Wait& wait, int rank) const {
  if (wait.barrier == 0) {
    return std::find(wait.peers.begin(), wait.peers.end(), rank) != wait.peers.end();
  }
  return rank != self_.rank &&
         layout_.line(rank).arrived.load(std::memory_order_acquire) < wait.barrier;
}

Status GroupWait::CheckGroup(const CallSignature& call) {
  const std::uint64_t reported = layout_.header().failure.load(std::memory_order_seq_cst);
  return reported == 0 ? OkStatus() : Fail(reported, call);
}

Status GroupWait::CheckPeers(const Wait& wait) {
  DS_RETURN_IF_ERROR(CheckGroup(wait.call));
  if (look_around_) DS_RETURN_IF_ERROR(look_around_());
  for (int rank = 0; rank < self_.size; ++rank) {
    if (!IsAwaited(wait, rank)) continue;
    const RankLine& line = layout_.line(rank);
    const pid_t pid = line.pid.load(std::memory_order_acquire);
    const bool has_ended =
        pid != 0 && watch_.HasEnded(rank, {.pid = pid, .started = line.started.load()});
    const bool has_left = line.has_left.load(std::memory_order_acquire) != 0;
    if (!has_ended && !has_left) continue;
    // Changes that the rank made before its end count.
    if (wait.is_over() || !IsAwaited(wait, rank)) return OkStatus();
    return Fail(Pack(has_left ? FailureKind::kLeft : FailureKind::kEnded, rank), wait.call);
  }
  return OkStatus();
}

Status GroupWait::NameMissing(const Wait& wait) {
  Absence late{.kind = Absence::Kind::kLate};
  int first = -1;
  for (int rank = 0; rank < self_.size; ++rank) {
    if (!IsAwaited(wait, rank)) continue;
    if (first < 0) first = rank;
    late.ranks.push_back(NumberOf(rank));
  }
  if (first < 0) return OkStatus();
  if (on_absence_) on_absence_(late);
  return Fail(Pack(wait.barrier == 0 ? FailureKind::kTimedOut : FailureKind::kNotAtBarrier, first),
              wait.call);
}

Status GroupWait::Fail(std::uint64_t failure, const CallSignature& call) {
  std::uint64_t first = 0;
  if (layout_.header().failure.compare_exchange_strong(first, failure)) {
    RingAll();
  } else {
    failure = first;
  }
  return UnavailableError(Explain(failure, call));
}

Status GroupWait::FailForMismatch(const std::string& message) {
  std::uint64_t none = 0;
  layout_.header().failure.compare_exchange_strong(none, Pack(FailureKind::kMismatch, self_.rank));
  RingAll();
  return FailedPreconditionError(message);
}

void GroupWait::Abort(std::string_view cause) {
  if (has_aborted_.exchange(true)) return;
  auto& text = layout_.line(self_.rank).cause;
  cause = cause.substr(0, text.size() - 1);
  std::copy(cause.begin(), cause.end(), text.begin());
  std::uint64_t none = 0;
  layout_.header().failure.compare_exchange_strong(none, Pack(FailureKind::kAborted, self_.rank));
  RingAll();
}

std::string GroupWait::AwaitEnd(const std::stop_token& stop) {
  Bell& bell = layout_.header().at_end;
  const std::atomic<std::uint64_t>& failure = layout_.header().failure;
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::stop_callback wake(stop, [&] { Ring(bell); });
  while (true) {
    const std::uint32_t heard = bell.rings.load(std::memory_order_seq_cst);
    if (failure.load(std::memory_order_seq_cst) != 0 || stop.stop_requested()) break;
    FutexWait(bell.rings, heard, std::chrono::hours(1));
  }
  bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  const std::uint64_t reported = failure.load(std::memory_order_seq_cst);
  return reported == 0 ? "" : CauseOf(reported);
}

std::string GroupWait::NameProcess(int rank) const {
  const pid_t pid = layout_.line(rank).pid.load(std::memory_order_acquire);
  return NameOf(rank) + (pid == 0 ? "" : " (process " + std::to_string(pid) + ")");
}

std::string GroupWait::NameLate(int rank) const {
  const pid_t pid = layout_.line(rank).pid.load(std::memory_order_acquire);
  const bool is_stopped = pid != 0 && IsStopped(pid);
  return NameProcess(rank) +
         (is_stopped ? ", which a signal has stopped (SIGSTOP or Ctrl-Z)," : "");
}

std::string GroupWait::CauseOf(std::uint64_t failure) const {
  const int rank = RankOfFailure(failure);
  switch (KindOf(failure)) {
    case FailureKind::kEnded:
      return NameProcess(rank) + " ended";
    case FailureKind::kLeft:
      return NameProcess(rank) + " left the group";
    case FailureKind::kTimedOut:
    case FailureKind::kNotAtBarrier:
      return NameLate(rank) + " did not arrive in time";
    case FailureKind::kMismatch:
      return NameProcess(rank) + " found that the ranks disagree about a collective";
    case FailureKind::kAborted:
      return layout_.line(rank).cause.data();
    case FailureKind::kNone:
      break;
  }
  return "the group failed";
}

std::string GroupWait::Explain(std::uint64_t failure, const CallSignature& call) const {
  const std::string doing = NameOf(self_.rank) + " was in " + Describe(call);
  const std::string where = " while " + doing;
  const std::string late =
      " did not arrive within " + std::to_string(timeout_.count() / 1000) + " s" + where;
  switch (KindOf(failure)) {
    case FailureKind::kEnded:
      return CauseOf(failure) + where + "; see that rank's own output for the reason";
    case FailureKind::kLeft:
      return CauseOf(failure) + where + "; it finished early or stopped after an error";
    case FailureKind::kTimedOut:
      return NameLate(RankOfFailure(failure)) + late;
    case FailureKind::kNotAtBarrier: {
      std::uint64_t latest = 0;
      for (int each = 0; each < self_.size; ++each) {
        latest = std::max(latest, layout_.line(each).arrived.load(std::memory_order_acquire));
      }
      const int first = RankOfFailure(failure);
      std::string missing = NameLate(first);
      for (int each = first + 1; each < self_.size; ++each) {
        const bool is_there = layout_.line(each).arrived.load(std::memory_order_acquire) == latest;
        if (!is_there) missing += ", " + NameLate(each);
      }
      return missing + late;
    }
    case FailureKind::kAborted:
      return CauseOf(failure) + "; " + doing;
    case FailureKind::kMismatch:
    case FailureKind::kNone:
      break;
  }
  return CauseOf(failure) + where;
}

}  // namespace ds::comm
