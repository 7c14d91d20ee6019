#pragma once

// FanOut processes many hosts in parallel, on a bounded number of threads. A transient failure is
// retried after a growing pause with jitter. The jitter is needed because sshd drops connections
// when too many clients log in at the same moment (MaxStartups).
//
// Run blocks; it calls `attempt` from several threads at once. An attempt that does not return
// within a second of its deadline, or of Interrupt, is given up: its outcome is a failure that
// names the call in which it is blocked, and its thread is left. `attempt` must therefore own
// everything that it uses. It changes nothing of the caller: it returns a function that does so,
// and Run calls that function on its own thread, unless the attempt has been given up.

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "cli/remote/host_attempt.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"

namespace ds::cli {

struct FanOutOptions {
  int at_once = 32;  // without the threads that are left
  int tries = 4;     // a host that hangs up during key exchange is retried until the timeout
  std::chrono::milliseconds first_pause{200};  // doubled each time, times 0.5 to 1.5
  std::chrono::milliseconds longest_pause{2'000};
  std::chrono::milliseconds timeout{20'000};      // for all tries of a host
  std::chrono::milliseconds report_every{3'000};  // interval of `progress`
};

struct FanOutProgress {
  int ready = 0;
  int total = 0;
  std::vector<int> waiting_for;  // hosts being tried, at most a few
};

class FanOut {
 public:
  using Accept = std::function<void()>;
  using Attempt = std::function<HostResult<Accept>(int index, HostAttempt* attempt)>;
  using Progress = std::function<void(const FanOutProgress&)>;  // on the thread of Run

  // Returns the outcomes by index. A failure does not stop the other hosts, so that the user sees
  // all failures. Throws std::system_error if this machine cannot start a thread.
  static std::vector<HostOutcome> Run(int count, const FanOutOptions& options,
                                      const std::shared_ptr<Interrupter>& interrupter,
                                      const Attempt& attempt, const Progress& progress);
};

// Returns the pause before try number `next` (1, 2, ...); `random` is from [0, 1). Pure.
std::chrono::milliseconds PauseBefore(const FanOutOptions& options, int next, double random);

}  // namespace ds::cli
