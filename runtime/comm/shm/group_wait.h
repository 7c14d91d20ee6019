#pragma once

// GroupWait: a rank waits for its peers here, and learns when waiting is in vain.
//
// A wait spins briefly (only where every rank can have a core of its own), then sleeps in the
// kernel, on the bell of the barrier or on its own. While it sleeps it looks around several times a
// second: has a rank it waits for ended or left, has the time run out? The first failure is
// recorded in the group's header, so that every rank names the same culprit, and all bells ring;
// whatever is waited for then or later fails at once. Threads: one GroupWait per rank, used by one
// thread at a time; Abort and AwaitEnd may be called from any.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/shm/call_signature.h"
#include "runtime/comm/shm/group_family.h"
#include "runtime/comm/shm/group_layout.h"

namespace ds::comm {

// Rank r of a group; two integers that are easily confused, named.
struct RankOf {
  int rank = 0;
  int size = 1;
};

// A process that is not mistaken for one that gets its id later.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t started = 0;  // clock ticks after the machine's start; 0: not known

  // Looks up `started`; not known where /proc does not say.
  static ProcessId Of(pid_t pid);
};

// PeerWatch: tells whether another rank's process has ended. It holds a pidfd per peer from the
// first question on, and compares the time of the start when it opens it, so a process id that the
// kernel has given to somebody else, before or later, is never mistaken for the peer. Threads: one
// thread at a time.
class PeerWatch {
 public:
  explicit PeerWatch(int size) : pidfds_(static_cast<std::size_t>(size)) {}

  // Tells whether rank `rank`, which runs as `process`, has ended. False where the kernel cannot
  // tell.
  bool HasEnded(int rank, const ProcessId& process);

 private:
  std::vector<UniqueFd> pidfds_;
};

// Tells whether a counter of the region has reached `target` (modulo 2^32).
inline bool HasReached(const std::atomic<std::uint32_t>& counter, std::uint32_t target) {
  return static_cast<std::int32_t>(counter.load(std::memory_order_seq_cst) - target) >= 0;
}

class GroupWait {
 public:
  struct Options {
    std::chrono::milliseconds timeout;  // as timeout() below
    std::vector<int> names;             // what errors call the ranks
    AbsenceListener on_absence = {};    // learns who did not come in time
  };
  GroupWait(GroupLayout layout, RankOf self, const Options& options);

  // The longest wait for a rank that neither ends nor comes (patience.h).
  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Called several times a second while waiting; an error ends the wait. Empty: nothing is.
  void set_look_around(std::function<Status()> look_around) {
    look_around_ = std::move(look_around);
  }
  // Called once in each wait that lasts for half of the longest one.
  void set_on_long_wait(std::function<void()> listener) { on_long_wait_ = std::move(listener); }

  // Says what errors call the rank: 3, and "rank 3".
  int NumberOf(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  std::string NameOf(int rank) const { return "rank " + std::to_string(NumberOf(rank)); }

  // The failure that has ended the group, as an error of `call`; OK when there is none.
  Status CheckGroup(const CallSignature& call);

  // Marks this rank as arrived at barrier `number` (counted from 1) and blocks until all have.
  Status WaitAtBarrier(std::uint64_t number, const CallSignature& call);

  // Blocks until `is_over`, which one of `peers` is to bring about: it changes a channel of this
  // rank's and then calls RingBellOf.
  Status WaitForPeers(std::span<const int> peers, const CallSignature& call,
                      const std::function<bool()>& is_over);
  void RingBellOf(int rank);
  // For waits elsewhere, several times a second: OK while none of `peers` has ended or left and the
  // group goes on.
  Status LookAround(std::span<const int> peers, const CallSignature& call);
  // Whoever waits looks around: this rank has left.
  void RingAll();

  // Ends the group for all ranks because its members disagree; returns `message` as the error.
  Status FailForMismatch(const std::string& message);
  // Ends the group for all ranks, which say `cause`. The first failure counts.
  void Abort(std::string_view cause);
  // Does what CpuGroup::AwaitEnd promises.
  std::string AwaitEnd(const std::stop_token& stop);

 private:
  struct Wait {
    Bell& bell;
    const std::function<bool()>& is_over;
    std::uint64_t barrier;       // 0 when waiting for `peers`
    std::span<const int> peers;  // none: all ranks that have not arrived at `barrier`
    const CallSignature& call;
  };
  static void Ring(Bell& bell);
  Status WaitUntilOver(const Wait& wait);
  bool Spin(const Wait& wait);
  Status Sleep(const Wait& wait);
  Status CheckPeers(const Wait& wait);
  Status NameMissing(const Wait& wait);
  // "rank 3 (process 17)", and with what holds it.
  std::string NameProcess(int rank) const;
  std::string NameLate(int rank) const;
  bool IsAwaited(const Wait& wait, int rank) const;
  Status Fail(std::uint64_t failure, const CallSignature& call);
  std::string CauseOf(std::uint64_t failure) const;
  std::string Explain(std::uint64_t failure, const CallSignature& call) const;

  GroupLayout layout_;
  RankOf self_;
  std::chrono::milliseconds timeout_;
  std::function<Status()> look_around_;
  std::function<void()> on_long_wait_;
  const AbsenceListener on_absence_;
  const std::vector<int> names_;
  bool has_enough_cores_;
  PeerWatch watch_;
  std::atomic<bool> has_aborted_ = false;
};

}  // namespace ds::comm
