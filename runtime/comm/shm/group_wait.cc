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
#include <fstream>
#include <sstream>
#include <utility>

namespace ds::comm {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kSpinTime{50};
constexpr std::chrono::milliseconds kCheckPeersEvery{100};
constexpr std::chrono::milliseconds kHelpPeersEvery{1};  // of a ring that is full, one is read
constexpr std::chrono::microseconds kMinSleep{1};

// A failure as it lies in the header: its kind above the rank at fault.
enum class FailureKind : std::uint64_t {
  kNone = 0,
  kEnded = 1,
  kLeft = 2,
  kTimedOut = 3,
  kMismatch = 4
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

// Blocks while `word`, which several processes may map, is `expected`, until FutexWakeAll or
// `timeout`. May also return for no reason: the caller looks at the word again.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
               std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative = {.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  // Its results (woken, timed out, interrupted, word already changed) all mean "look again".
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void FutexWakeAll(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ProcessId ProcessId::Of(pid_t pid) {
  // The 22nd field; the second, the program's name in parentheses, may hold blanks.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {.pid = pid};
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  ProcessId process{.pid = pid};
  fields >> process.started;
  return process;
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
      first_name_(options.first_name),
      has_enough_cores_(HasEnoughCores(self.size)),
      watch_(self.size) {}

Status GroupWait::WaitAtBarrier(std::uint64_t number, const CallSignature& call) {
  GroupHeader& header = layout_.header();
  const auto ranks = static_cast<std::uint64_t>(self_.size);
  const auto target = static_cast<std::uint32_t>(number);
  const bool is_last =
      header.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks * number;
  if (is_last) {
    header.interval.value.store(target, std::memory_order_seq_cst);
    Wake(header.interval);
  }
  // After the barrier itself: a rank that dies in between is seen as one that never arrived.
  layout_.line(self_.rank).arrived.store(number, std::memory_order_release);
  if (is_last) return OkStatus();
  return WaitUntilReached({.word = header.interval,
                           .target = target,
                           .barrier = number,
                           .peer = std::nullopt,
                           .call = call});
}

Status GroupWait::WaitForPeer(WaitWord& word, std::uint32_t target, int peer,
                              const CallSignature& call, const std::function<void()>& meanwhile) {
  return WaitUntilReached({.word = word,
                           .target = target,
                           .barrier = 0,
                           .peer = peer,
                           .call = call,
                           .meanwhile = meanwhile ? &meanwhile : nullptr});
}

bool GroupWait::HasReached(const WaitWord& word, std::uint32_t target) {
  return static_cast<std::int32_t>(word.value.load(std::memory_order_acquire) - target) >= 0;
}

void GroupWait::Wake(WaitWord& word) {
  if (word.sleepers.load(std::memory_order_seq_cst) > 0) FutexWakeAll(word.value);
}

Status GroupWait::WaitUntilReached(const Wait& wait) {
  if (HasReached(wait.word, wait.target) || Spin(wait)) return OkStatus();
  wait.word.sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status = Sleep(wait);
  wait.word.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

// True when the wait is over. Spinning on the core that the awaited rank needs would only delay it.
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
      if (HasReached(wait.word, wait.target)) return true;
    }
  } while (steady_clock::now() < end);
  return false;
}

Status GroupWait::Sleep(const Wait& wait) {
  const auto deadline = steady_clock::now() + timeout_;
  const std::chrono::nanoseconds most =
      wait.meanwhile == nullptr ? kCheckPeersEvery : kHelpPeersEvery;
  while (true) {
    if (wait.meanwhile != nullptr) (*wait.meanwhile)();
    const std::uint32_t seen = wait.word.value.load(std::memory_order_seq_cst);
    if (HasReached(wait.word, wait.target)) return OkStatus();
    const auto left = deadline - steady_clock::now();
    FutexWait(wait.word.value, seen, std::clamp<std::chrono::nanoseconds>(left, kMinSleep, most));
    if (HasReached(wait.word, wait.target)) return OkStatus();
    DS_RETURN_IF_ERROR(CheckPeers(wait, deadline));
  }
}

bool GroupWait::IsAwaited(const Wait& wait, int rank) const {
  if (wait.peer.has_value()) return rank == *wait.peer;
  return rank != self_.rank &&
         layout_.line(rank).arrived.load(std::memory_order_acquire) < wait.barrier;
}

Status GroupWait::CheckPeers(const Wait& wait, steady_clock::time_point deadline) {
  const std::uint64_t reported = layout_.header().failure.load(std::memory_order_acquire);
  if (reported != 0) return Fail(reported, wait.call);
  for (int rank = 0; rank < self_.size; ++rank) {
    if (!IsAwaited(wait, rank)) continue;
    const RankLine& line = layout_.line(rank);
    const pid_t pid = line.pid.load(std::memory_order_acquire);
    const bool has_ended =
        pid != 0 && watch_.HasEnded(rank, {.pid = pid, .started = line.started.load()});
    const bool has_left = line.has_left.load(std::memory_order_acquire) != 0;
    if (!has_ended && !has_left) continue;
    // What it did before it went counts.
    if (HasReached(wait.word, wait.target) || !IsAwaited(wait, rank)) return OkStatus();
    return Fail(Pack(has_left ? FailureKind::kLeft : FailureKind::kEnded, rank), wait.call);
  }
  if (steady_clock::now() < deadline) return OkStatus();
  for (int rank = 0; rank < self_.size; ++rank) {
    if (IsAwaited(wait, rank)) return Fail(Pack(FailureKind::kTimedOut, rank), wait.call);
  }
  return OkStatus();
}

Status GroupWait::Fail(std::uint64_t failure, const CallSignature& call) {
  std::uint64_t first = 0;
  GroupHeader& header = layout_.header();
  if (!header.failure.compare_exchange_strong(first, failure)) failure = first;
  Wake(header.interval);
  return UnavailableError(Explain(failure, call));
}

Status GroupWait::FailForMismatch(const std::string& message) {
  std::uint64_t none = 0;
  GroupHeader& header = layout_.header();
  header.failure.compare_exchange_strong(none, Pack(FailureKind::kMismatch, self_.rank));
  Wake(header.interval);
  return FailedPreconditionError(message);
}

std::string GroupWait::Explain(std::uint64_t failure, const CallSignature& call) const {
  const int rank = RankOfFailure(failure);
  const pid_t pid = layout_.line(rank).pid.load(std::memory_order_acquire);
  const std::string who = "rank " + std::to_string(first_name_ + rank) +
                          (pid == 0 ? "" : " (process " + std::to_string(pid) + ")");
  const std::string where =
      " while rank " + std::to_string(first_name_ + self_.rank) + " was in " + Describe(call);
  switch (KindOf(failure)) {
    case FailureKind::kEnded:
      return who + " ended" + where + "; see that rank's own output for the reason";
    case FailureKind::kLeft:
      return who + " left the group" + where + "; it finished early or stopped after an error";
    case FailureKind::kTimedOut:
      return who + " did not come within " + std::to_string(timeout_.count() / 1000) + " s" + where;
    case FailureKind::kMismatch:
      return who + " found that the ranks disagree about a collective" + where;
    case FailureKind::kNone:
      break;
  }
  return "the group failed" + where;
}

}  // namespace ds::comm
