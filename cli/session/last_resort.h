#pragma once

// LastResort: SIGKILL to daemons of this machine that follow no stop, for a user who is tired of
// them. The first signal stops the ranks, the second kills them, both by way of their daemons. Only
// when he has been told, a second later, who is still being waited for, his next signal kills the
// daemons themselves: before, it would only cost output that is on its way.
//
// Threads: OnStop on that of the signals, one at a time; the rest on another. The hosts and `warn`,
// which is called on a thread of its own, outlive it.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "cli/session/host_starter.h"

namespace ds::cli {

class LastResort {
 public:
  LastResort(HostStarter* hosts, HostStarter::NoticeCallback warn)
      : hosts_(*hosts), warn_(std::move(warn)) {}

  // The user has asked, once more, for the end of the job.
  void OnStop();

 private:
  // Tells the user after a second, unless this object goes before.
  void Announce(const std::stop_token& stop);

  HostStarter& hosts_;
  const HostStarter::NoticeCallback warn_;
  int stops_ = 0;
  std::atomic<bool> announced_ = false;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread patience_;  // goes before what it uses
};

}  // namespace ds::cli
