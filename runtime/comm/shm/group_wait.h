#pragma once

// GroupWait: waits for peers and detects when waiting cannot succeed.
//
// A wait spins briefly (only if every rank can have its own core), then sleeps in the kernel, on
// the bell of the barrier or on the rank's bell. A sleeping rank checks several times a second
// whether an awaited rank has ended or left and whether the timeout has passed. The first failure
// is recorded in the group's header, so that every rank names the same culprit, and all bells ring.
// Pending and later waits then fail at once. Threads: one GroupWait per rank, used by one thread at
// a time. Abort and AwaitEnd may be called from any thread.

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

// Rank r of a group; names two integers that are easily confused.
struct RankOf {
  int rank = 0;
  int size = 1;
};

// ProcessId: identifies a process even if the kernel reuses its pid.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t started = 0;  // clock ticks since boot; 0: unknown

  // Looks up `started`; it stays 0 if /proc does not report it.
  static ProcessId Of(pid_t pid);
};

// PeerWatch: detects whether another rank's process has ended. It opens a pidfd per peer on the
// first query and compares the process's start time. A process that got the same pid before or
// after is therefore never mistaken for the peer. Not thread-safe.
class PeerWatch {
 public:
  explicit PeerWatch(int size) : pidfds_(static_cast<std::size_t>(size)) {}

  // Returns whether rank `rank`, which runs as `process`, has ended. Returns false if the kernel
  // cannot tell.
  bool HasEnded(int rank, const ProcessId& process);

 private:
  std::vector<UniqueFd> pidfds_;
};

// Returns whether a counter of the region has reached `target` (modulo 2^32).
inline bool HasReached(const std::atomic<std::uint32_t>& counter, std::uint32_t target) {
  return static_cast<std::int32_t>(counter.load(std::memory_order_seq_cst) - target) >= 0;
}

class GroupWait {
 public:
  struct Options {
    std::chrono::milliseconds timeout;  // see timeout() below
    std::vector<int> names;             // the ranks' numbers in errors
    AbsenceListener on_absence = {};    // receives the ranks that did not arrive in time
  };
  GroupWait(GroupLayout layout, RankOf self, const Options& options);

  // Timeout for a rank that neither ends nor arrives (wait_timeout.h).
  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  // Sets a callback for several calls a second during a wait; an error ends the wait. May be empty.
  void set_look_around(std::function<Status()> look_around) {
    look_around_ = std::move(look_around);
  }
  // Sets a callback that runs once in each wait that lasts for half of the timeout.
  void set_on_long_wait(std::function<void()> listener) { on_long_wait_ = std::move(listener); }

  // Return the rank's number and name in errors: 3, and "rank 3".
  int NumberOf(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  std::string NameOf(int rank) const { return "rank " + std::to_string(NumberOf(rank)); }

  // Returns the failure that has ended the group as an error of `call`; OK if there is none.
  Status CheckGroup(const CallSignature& call);

  // Marks this rank as arrived at barrier `number` (counted from 1) and blocks until all ranks have
  // arrived.
  Status WaitAtBarrier(std::uint64_t number, const CallSignature& call);

  // Blocks until `is_over` returns true. One of `peers` makes it true: it changes one of this
  // rank's channels and then calls RingBellOf.
  Status WaitForPeers(std::span<const int> peers, const CallSignature& call,
                      const std::function<bool()>& is_over);
  void RingBellOf(int rank);
  // Checks peers during waits elsewhere; call it several times a second. Returns OK while none of
  // `peers` has ended or left and the group has not failed.
  Status CheckForFailure(std::span<const int> peers, const CallSignature& call);
  // Wakes all waiting ranks to check their peers, because this rank has left.
  void RingAll();

  // Ends the group for all ranks because its members disagree; returns `message` as the error.
  Status FailForMismatch(const std::string& message);
  // Ends the group for all ranks with `cause`. The first failure counts.
  void Abort(std::string_view cause);
  // Implements CpuGroup::AwaitEnd.
  std::string AwaitEnd(const std::stop_token& stop);

 private:
  struct Wait {
    Bell& bell;
    const std::function<bool()>& is_over;
    std::uint64_t barrier;       // 0 when waiting for `peers`
    std::span<const int> peers;  // empty: all ranks that have not arrived at `barrier`
    const CallSignature& call;
  };
  static void Ring(Bell& bell);
  Status WaitUntilOver(const Wait& wait);
  bool Spin(const Wait& wait);
  Status Sleep(const Wait& wait);
  Status CheckPeers(const Wait& wait);
  Status NameMissing(const Wait& wait);
  // Return "rank 3 (process 17)"; NameLate adds whether a signal has stopped the process.
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
