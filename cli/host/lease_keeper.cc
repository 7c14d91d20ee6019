#include "cli/host/lease_keeper.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cli/host/connection_probe.h"
#include "runtime/base/clock.h"
#include "runtime/process/boot_time.h"

namespace ds::cli {
namespace {

constexpr std::chrono::milliseconds kReleasePatience{2000};
constexpr std::chrono::milliseconds kLostHostPatience{2000};

std::chrono::milliseconds Milliseconds(std::chrono::nanoseconds duration) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(duration),
                  std::chrono::milliseconds(1));
}

OwnPauses::Clocks ReadClocks() { return {.boot = BootTime(), .awake = Clock::System().Now()}; }

struct FoundChange {
  HostDaemon* daemon;
  HostChange change;
};

// All at once, as far as there are threads: a switch that fails takes many hosts along.
void LookAtLostHosts(std::vector<FoundChange>* found, std::chrono::milliseconds timeout) {
  std::vector<std::pair<HostChange*, std::future<ProbeResult>>> looks;
  for (FoundChange& each : *found) {
    if (each.change.grade != HostGrade::kLost) continue;
    looks.emplace_back(&each.change, std::async(std::launch::async | std::launch::deferred,
                                                [daemon = each.daemon, timeout] {
                                                  return daemon->Probe(timeout);
                                                }));
  }
  for (auto& [change, look] : looks) change->probe = look.get();
}

}  // namespace

struct LeaseKeeper::State : std::enable_shared_from_this<State> {
  State(std::chrono::nanoseconds lease, ClocksCallback clocks)
      : read_clocks(std::move(clocks)), table(lease) {}

  void Run();
  void RenewDue(std::unique_lock<std::mutex>* lock);
  void TellChanges(std::unique_lock<std::mutex>* lock);
  std::vector<FoundChange> FindChanges(std::chrono::nanoseconds now);

  const ClocksCallback read_clocks;
  std::mutex mutex;
  std::condition_variable changed;
  LeaseTable table;                    // guarded by mutex, like all below
  std::map<int, HostDaemon*> daemons;  // by number
  OnChange on_change;
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

// By the very time by which hosts are graded: this process may stand still at any place, and a
// machine without memory lets it do so where it works. A look at the ports of lost hosts takes a
// while of itself, and is no standstill, whoever asks for one meanwhile.
void LeaseKeeper::State::TellChanges(std::unique_lock<std::mutex>* lock) {
  const OwnPauses::Clocks now = read_clocks();
  table.EndWait(now);
  std::vector<FoundChange> found;
  if (on_change) found = FindChanges(now.awake);
  if (found.empty()) return table.BeginWait(now);
  const OnChange tell = on_change;
  lock->unlock();
  LookAtLostHosts(&found, std::min(kLostHostPatience, Milliseconds(table.lease())));
  for (const FoundChange& each : found) tell(each.change);
  lock->lock();
  table.BeginWait(read_clocks());
}

std::vector<FoundChange> LeaseKeeper::State::FindChanges(std::chrono::nanoseconds now) {
  for (const int number : table.present()) {
    const auto event = daemons.at(number)->LastEvent();
    if (event > event.zero()) table.OnEvent(number, event);
  }
  std::vector<FoundChange> found;
  for (HostChange& change : table.TakeChanges(now, Clock::System().UnixNanos())) {
    found.push_back({daemons.at(change.host), std::move(change)});
  }
  return found;
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

std::optional<OwnPause> LeaseKeeper::FindOwnPause() const {
  const std::lock_guard lock(state_->mutex);
  return state_->table.FindOwnPause(state_->read_clocks().boot);
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
    daemon->Renew({.release = true, .timeout = kReleasePatience}, [state = state_](const Status&) {
      const std::lock_guard guard(state->mutex);
      --state->releasing;
      state->changed.notify_all();
    });
  }
  lock.lock();
  state_->changed.wait(lock, [this] { return state_->releasing == 0; });
}

}  // namespace ds::cli
