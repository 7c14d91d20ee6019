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

// A daemon that hears nothing over its connections when they have ended takes this process for
// ended, too (daemon/network/network_listener.h): then not the lease, but its patience counts.
constexpr int kRenewalsPerLease = 6;
constexpr std::chrono::milliseconds kLongestInterval{1500};
constexpr int kLooksPerRenewal = 4;  // and so soon a renewal that failed is tried again
constexpr std::chrono::milliseconds kReleasePatience{2000};
constexpr std::chrono::milliseconds kLostHostPatience{2000};

std::chrono::nanoseconds RenewalInterval(std::chrono::nanoseconds lease) {
  return std::min<std::chrono::nanoseconds>(lease / kRenewalsPerLease, kLongestInterval);
}

std::chrono::milliseconds Milliseconds(std::chrono::nanoseconds duration) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(duration),
                  std::chrono::milliseconds(1));
}

struct Host {
  Host(HostDaemon* host_daemon, const HostLiveness& host_liveness)
      : daemon(host_daemon), liveness(host_liveness) {}

  HostDaemon* const daemon;
  HostLiveness liveness;
  HostGrade told = HostGrade::kAlive;
  std::chrono::nanoseconds next_renewal{};
  bool renewing = false;
  bool has_answered = false;
  std::chrono::nanoseconds last_silence{};  // when it was last found not alive
};

struct FoundChange {
  HostDaemon* daemon;
  HostChange change;
};

// All at once, as far as there are threads: a switch that fails takes many hosts along.
void LookAtLostHosts(std::vector<FoundChange>* found, std::chrono::milliseconds patience) {
  std::vector<std::pair<HostChange*, std::future<ProbeResult>>> looks;
  for (FoundChange& each : *found) {
    if (each.change.grade != HostGrade::kLost) continue;
    looks.emplace_back(&each.change, std::async(std::launch::async | std::launch::deferred,
                                                [daemon = each.daemon, patience] {
                                                  return daemon->Probe(patience);
                                                }));
  }
  for (auto& [change, look] : looks) change->probe = look.get();
}

}  // namespace

struct LeaseKeeper::State : std::enable_shared_from_this<State> {
  explicit State(std::chrono::nanoseconds lease_of_all)
      : lease(lease_of_all),
        renewal_interval(RenewalInterval(lease)),
        look_interval(renewal_interval / kLooksPerRenewal),
        pauses(2 * lease) {}

  void Run();
  void RenewDue(std::unique_lock<std::mutex>* lock);
  void TellChanges(std::unique_lock<std::mutex>* lock);
  std::vector<FoundChange> FindChanges();
  void OnRenewed(int number, const Status& answer);
  static std::chrono::nanoseconds Now() { return Clock::System().Now(); }

  const std::chrono::nanoseconds lease;
  const std::chrono::nanoseconds renewal_interval;
  const std::chrono::nanoseconds look_interval;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, Host> hosts;  // guarded by mutex, like all below; entries stay where they are
  OnChange on_change;
  int releasing = 0;  // releases that are not answered
  bool released = false;
  OwnPauses pauses;
  std::thread thread;
};

void LeaseKeeper::State::Run() {
  std::unique_lock lock(mutex);
  while (!released) {
    RenewDue(&lock);
    TellChanges(&lock);
    pauses.BeginWait({.boot = BootTime(), .awake = Now()});
    changed.wait_for(lock, look_interval, [this] { return released; });
    const OwnPause pause = pauses.EndWait({.boot = BootTime(), .awake = Now()});
    const std::chrono::nanoseconds excess = pause.length - look_interval;
    if (excess < renewal_interval || pause.length >= lease) continue;
    for (auto& [number, host] : hosts) host.liveness.OnOwnPause(excess);
  }
}

void LeaseKeeper::State::RenewDue(std::unique_lock<std::mutex>* lock) {
  std::vector<std::pair<int, HostDaemon*>> due;
  const std::chrono::nanoseconds now = Now();
  for (auto& [number, host] : hosts) {
    if (host.renewing || host.told == HostGrade::kLost || now < host.next_renewal) continue;
    host.renewing = true;
    host.next_renewal = now + renewal_interval;
    due.emplace_back(number, host.daemon);
  }
  lock->unlock();  // a daemon may answer at once
  for (const auto& [number, daemon] : due) {
    daemon->Renew({.timeout = Milliseconds(lease / 2)},
                  [self = shared_from_this(), host = number](const Status& answer) {
                    self->OnRenewed(host, answer);
                  });
  }
  lock->lock();
}

void LeaseKeeper::State::OnRenewed(int number, const Status& answer) {
  const std::lock_guard lock(mutex);
  Host& host = hosts.at(number);
  host.renewing = false;
  if (answer.ok()) {
    host.liveness.OnAnswer(Now());
    // The first answer is there to be named by the next renewal: only then the lease is longer.
    if (!std::exchange(host.has_answered, true)) host.next_renewal = Now();
  } else {
    host.liveness.OnFailedRenewal(answer.message());
    host.next_renewal = Now() + look_interval;
  }
}

void LeaseKeeper::State::TellChanges(std::unique_lock<std::mutex>* lock) {
  if (!on_change) return;
  std::vector<FoundChange> found = FindChanges();
  if (found.empty()) return;
  const OnChange tell = on_change;
  lock->unlock();
  LookAtLostHosts(&found, std::min(kLostHostPatience, Milliseconds(lease)));
  for (const FoundChange& each : found) tell(each.change);
  lock->lock();
}

std::vector<FoundChange> LeaseKeeper::State::FindChanges() {
  std::vector<FoundChange> found;
  const std::chrono::nanoseconds now = Now();
  for (auto& [number, host] : hosts) {
    if (host.told == HostGrade::kLost) continue;
    if (const auto event = host.daemon->LastEvent(); event > event.zero()) {
      host.liveness.OnEvent(event);
    }
    const HostGrade grade = host.liveness.Grade(now);
    if (grade != HostGrade::kAlive) host.last_silence = host.liveness.silence(now);
    if (grade == host.told) continue;
    const HostGrade before = std::exchange(host.told, grade);
    const auto silence = host.liveness.silence(now);
    found.push_back({host.daemon,
                     {.host = number,
                      .grade = grade,
                      .before = before,
                      .silence = host.last_silence,
                      .last_sign_unix_nanos = Clock::System().UnixNanos() - silence.count(),
                      .evidence = host.liveness.Evidence()}});
  }
  return found;
}

LeaseKeeper::LeaseKeeper(std::chrono::nanoseconds lease) : state_(std::make_shared<State>(lease)) {}

LeaseKeeper::~LeaseKeeper() { Release(); }

void LeaseKeeper::Add(int number, HostDaemon* daemon) {
  if (!daemon->leased()) return;
  const std::lock_guard lock(state_->mutex);
  const HostLiveness liveness(LivenessThresholds::OfLease(state_->lease), State::Now());
  state_->hosts.emplace(number, Host(daemon, liveness));
  if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->Run(); });
}

void LeaseKeeper::Listen(OnChange on_change) {
  const std::lock_guard lock(state_->mutex);
  state_->on_change = std::move(on_change);
}

std::optional<OwnPause> LeaseKeeper::FindOwnPause() const {
  const std::lock_guard lock(state_->mutex);
  const OwnPause pause = state_->pauses.FindLongest(BootTime());
  // A lease counts from an answer that a later renewal has named: on a busy machine, and before the
  // first renewals, most of it is over when the pause begins.
  if (pause.length < state_->lease / 3) return std::nullopt;
  return pause;
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
  for (const auto& [number, host] : state_->hosts) {
    if (host.told != HostGrade::kLost) daemons.push_back(host.daemon);
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
