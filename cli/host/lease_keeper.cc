#include "cli/host/lease_keeper.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cli/host/connection_probe.h"
#include "cli/host/deadlines.h"
#include "runtime/base/clock.h"
#include "runtime/process/boot_time.h"

namespace ds::cli {
namespace {

std::chrono::milliseconds Milliseconds(std::chrono::nanoseconds duration) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(duration),
                  std::chrono::milliseconds(1));
}

OwnPauses::Clocks ReadClocks() { return {.boot = BootTime(), .awake = Clock::System().Now()}; }

}  // namespace

struct LeaseKeeper::State : std::enable_shared_from_this<State> {
  State(std::chrono::nanoseconds lease, ClocksCallback clocks)
      : read_clocks(std::move(clocks)), table(lease) {}

  void Run();
  void RenewDue(std::unique_lock<std::mutex>* lock);
  void TellChanges(std::unique_lock<std::mutex>* lock);
  std::vector<HostChange> FindChanges(std::chrono::nanoseconds now);
  void BeginProbe(HostChange lost, HostDaemon* daemon, OnChange tell);

  const ClocksCallback read_clocks;
  std::mutex mutex;
  std::condition_variable changed;
  LeaseTable table;                    // guarded by mutex, like all below
  std::map<int, HostDaemon*> daemons;  // by number
  OnChange on_change;
  int probing = 0;    // probes of lost hosts that have not been reported
  int releasing = 0;  // releases that are not answered
  bool released = false;
  std::thread thread;
};

void LeaseKeeper::State::Run() {
  std::unique_lock lock(mutex);
  table.BeginWait(read_clocks());
  while (!released) {
    RenewDue(&lock);
    TellChanges(&lock);
    changed.wait_for(lock, table.look_interval(), [this] { return released; });
  }
}

void LeaseKeeper::State::RenewDue(std::unique_lock<std::mutex>* lock) {
  std::vector<std::pair<int, HostDaemon*>> due;
  for (const int number : table.TakeDue(read_clocks().awake))
    due.emplace_back(number, daemons.at(number));
  const std::chrono::milliseconds timeout = Milliseconds(table.lease() / 2);
  lock->unlock();  // a daemon may answer at once
  for (const auto& [number, daemon] : due) {
    daemon->Renew({.timeout = timeout},
                  [self = shared_from_this(), host = number](const Status& answer) {
                    const std::lock_guard guard(self->mutex);
                    self->table.OnRenewed(host, answer, self->read_clocks().awake);
                  });
  }
  lock->lock();
}

// One reading of the clocks grades the hosts and ends the wait: this process may stand still at any
// place, and on a machine without free memory it does so where it works.
void LeaseKeeper::State::TellChanges(std::unique_lock<std::mutex>* lock) {
  const OwnPauses::Clocks now = read_clocks();
  table.EndWait(now);
  table.BeginWait(now);
  if (!on_change) return;
  const std::vector<HostChange> found = FindChanges(now.awake);
  const OnChange tell = on_change;
  for (const HostChange& change : found) {
    HostDaemon* const daemon = daemons.at(change.host);
    if (change.awaits_probe()) ++probing;
    lock->unlock();
    tell(change);
    if (change.awaits_probe()) BeginProbe(change, daemon, tell);
    lock->lock();
  }
}

// A probe waits for a host that does not answer, so it gets a thread of its own: a failed switch
// takes many hosts along, and the leases of the others must be renewed meanwhile.
void LeaseKeeper::State::BeginProbe(HostChange lost, HostDaemon* daemon, OnChange tell) {
  lost.before = HostGrade::kLost;
  const auto report = [self = shared_from_this(),
                       tell = std::move(tell)](const HostChange& probed) {
    tell(probed);
    const std::lock_guard guard(self->mutex);
    --self->probing;
    self->changed.notify_all();
  };
  const auto timeout = std::min(deadlines::kProbe, Milliseconds(table.lease()));
  try {
    std::thread([report, lost, daemon, timeout]() mutable {
      lost.probe = daemon->Probe(timeout);
      report(lost);
    }).detach();
  } catch (const std::system_error&) {
    lost.probe = {Reachability::kUnreachable, "not probed: this machine has no free thread"};
    report(lost);
  }
}

std::vector<HostChange> LeaseKeeper::State::FindChanges(std::chrono::nanoseconds now) {
  for (const int number : table.present()) {
    const auto event = daemons.at(number)->LastEvent();
    if (event > event.zero()) table.OnEvent(number, event);
  }
  return table.TakeChanges(now, Clock::System().UnixNanos());
}

LeaseKeeper::LeaseKeeper(std::chrono::nanoseconds lease, ClocksCallback clocks)
    : state_(std::make_shared<State>(lease, clocks ? std::move(clocks) : ReadClocks)) {}

LeaseKeeper::~LeaseKeeper() { Release(); }

void LeaseKeeper::Add(int number, HostDaemon* daemon) {
  const std::lock_guard lock(state_->mutex);
  state_->table.Add(number, state_->read_clocks().awake, /*is_of_this_machine=*/!daemon->leased());
  state_->daemons.emplace(number, daemon);
  if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->Run(); });
}

void LeaseKeeper::Listen(OnChange on_change) {
  const std::lock_guard lock(state_->mutex);
  state_->on_change = std::move(on_change);
}

std::optional<OwnPause> LeaseKeeper::FindOwnPause(std::optional<int> number) const {
  const std::lock_guard lock(state_->mutex);
  return state_->table.FindOwnPause(state_->read_clocks().boot, number);
}

void LeaseKeeper::Release() {
  std::unique_lock lock(state_->mutex);
  if (state_->released) return;
  state_->released = true;
  state_->changed.notify_all();
  lock.unlock();
  if (state_->thread.joinable()) state_->thread.join();
  lock.lock();
  std::vector<HostDaemon*> daemons;
  for (const int number : state_->table.present()) {
    HostDaemon* const daemon = state_->daemons.at(number);
    if (daemon->leased()) daemons.push_back(daemon);  // another ends with its pipe
  }
  state_->releasing = static_cast<int>(daemons.size());
  lock.unlock();
  for (HostDaemon* daemon : daemons) {
    // Whatever the answer is: a daemon that has not heard it ends with its lease.
    daemon->Renew({.release = true, .timeout = deadlines::kRelease},
                  [state = state_](const Status&) {
                    const std::lock_guard guard(state->mutex);
                    --state->releasing;
                    state->changed.notify_all();
                  });
  }
  lock.lock();
  state_->changed.wait(lock, [this] { return state_->releasing == 0 && state_->probing == 0; });
}

}  // namespace ds::cli
