#pragma once

// GroupWait: a rank waits for its peers here, and learns when waiting is in vain.
//
// A wait spins briefly (only where every rank can have a core of its own), then sleeps in the
// kernel. While it sleeps it looks around several times a second: has a rank it waits for ended or
// left, has the time run out, has another rank reported a failure? The first failure is recorded in
// the group's header, so that every rank names the same culprit; the group is unusable from then
// on. Threads: one GroupWait per rank, used by that rank's thread.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/shm/call_signature.h"
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

class GroupWait {
 public:
  struct Options {
    std::chrono::milliseconds timeout;  // as timeout() below
    int first_name = 0;                 // what errors call rank 0
  };
  GroupWait(GroupLayout layout, RankOf self, const Options& options);

  // The longest wait for a rank that neither ends nor comes.
  std::chrono::milliseconds timeout() const { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Marks this rank as arrived at barrier `number` (counted from 1) and blocks until all have.
  Status WaitAtBarrier(std::uint64_t number, const CallSignature& call);

  // Blocks until `word` has reached `target` (modulo 2^32), which `peer` is to bring about. Calls
  // `meanwhile` again and again: what peers wait for that this rank can do while it waits.
  Status WaitForPeer(WaitWord& word, std::uint32_t target, int peer, const CallSignature& call,
                     const std::function<void()>& meanwhile = {});

  // Tells whether `word` has reached `target` (modulo 2^32).
  static bool HasReached(const WaitWord& word, std::uint32_t target);
  // Wakes whoever waits on `word`. Call it after changing the value.
  static void Wake(WaitWord& word);

  // Ends the group for all ranks because its members disagree; returns `message` as the error.
  Status FailForMismatch(const std::string& message);

 private:
  struct Wait {
    WaitWord& word;
    std::uint32_t target;
    std::uint64_t barrier;    // 0 when waiting for `peer`
    std::optional<int> peer;  // none: all ranks that have not arrived at `barrier`
    const CallSignature& call;
    const std::function<void()>* meanwhile = nullptr;  // may be null
  };
  Status WaitUntilReached(const Wait& wait);
  bool Spin(const Wait& wait);
  Status Sleep(const Wait& wait);
  Status CheckPeers(const Wait& wait, std::chrono::steady_clock::time_point deadline);
  bool IsAwaited(const Wait& wait, int rank) const;
  Status Fail(std::uint64_t failure, const CallSignature& call);
  std::string Explain(std::uint64_t failure, const CallSignature& call) const;

  GroupLayout layout_;
  RankOf self_;
  std::chrono::milliseconds timeout_;
  int first_name_;
  bool has_enough_cores_;
  PeerWatch watch_;
};

}  // namespace ds::comm
