#pragma once

// FanOut: many hosts at once, but never too many: a bounded number of threads, each taking the next
// host, trying again after a growing, jittered pause where another try may do better. sshd drops
// connections when too many log in at the same moment (MaxStartups), which is what the jitter is
// for.
//
// Threads: Run blocks; `attempt` is called from several threads at once.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/remote/host_failure.h"
#include "cli/remote/interrupter.h"

namespace ds::cli {

struct FanOutOptions {
  int at_once = 32;
  int tries = 4;  // but one that hangs up while agreeing on keys is tried until the time is over
  std::chrono::milliseconds first_pause{200};  // doubled each time, times 0.5 to 1.5
  std::chrono::milliseconds longest_pause{2'000};
  std::chrono::milliseconds timeout{20'000};      // all tries of a host together
  std::chrono::milliseconds report_every{3'000};  // how often `progress` is called
};

struct FanOutProgress {
  int ready = 0;
  int total = 0;
  std::vector<int> waiting_for;  // that are being tried, at most a few
};

class FanOut {
 public:
  using Attempt = std::function<HostOutcome(int index, Interrupter::Deadline deadline)>;
  using Progress = std::function<void(const FanOutProgress&)>;  // on the thread of Run

  // By index. The first failure does not stop the others: the user wants to hear of all.
  static std::vector<HostOutcome> Run(int count, const FanOutOptions& options,
                                      Interrupter* interrupter, const Attempt& attempt,
                                      const Progress& progress);
};

// Pure: the pause before try number `next` (1, 2, ...); `random` is from [0, 1).
std::chrono::milliseconds PauseBefore(const FanOutOptions& options, int next, double random);

}  // namespace ds::cli
