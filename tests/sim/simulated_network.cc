// The network of a simulated job, and what is done to it and to the hosts.

#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/sim/simulated_job.h"

namespace ds::sim {
namespace {

using std::chrono::milliseconds;

constexpr double kDuplicated = 0.02;      // of what may come twice
constexpr double kReset = 0.03;           // connections that break under a call
constexpr double kLostInPartition = 0.5;  // the rest comes when it has healed
constexpr milliseconds kReconnectAfter{300};

}  // namespace

void SimulatedJob::Inject(const Fault& fault) {
  Trace("fault " + std::to_string(static_cast<int>(fault.kind)) + " at " +
        std::to_string(fault.host) + " for " +
        std::to_string(std::chrono::duration<double>(fault.length).count()) + " s");
  if (fault.kind == FaultKind::kPauseDsrun) return PauseDsrun(fault.length);
  if (fault.kind == FaultKind::kUserSignal) return SendUserSignal();
  if (fault.kind == FaultKind::kFailEverywhere) return FailEverywhere();
  if (fault.kind == FaultKind::kKillAgent) return KillAgent();
  if (const auto daemon = FindDaemon(fault.host); daemon.has_value()) InjectOnHost(fault, *daemon);
}

void SimulatedJob::InjectOnHost(const Fault& fault, int number) {
  Link& link = links_[number];
  SimulatedHost* const host = hosts_[number].get();
  const Time end = clock_.now() + fault.length;
  const auto heal = [this, number] { Reconnect(number); };
  switch (fault.kind) {
    case FaultKind::kKillDaemon:
      return host->KillDaemon();
    case FaultKind::kPauseDaemon:
      host->PauseDaemon();
      return clock_.At(end, [host] { host->ResumeDaemon(); });
    case FaultKind::kPartition:
      link.blocked_down_until = link.blocked_up_until = end;
      return clock_.At(end, heal);
    case FaultKind::kDeafHost:
      link.blocked_down_until = end;
      return clock_.At(end, heal);
    case FaultKind::kMuteHost:
      link.blocked_up_until = end;
      return clock_.At(end, heal);
    case FaultKind::kSlowNetwork:
      link.slow_until = end;
      return;
    case FaultKind::kKillRank:
      return host->KillRank();
    case FaultKind::kFlood:
      link.flooded_until = end;
      return;
    case FaultKind::kPauseDsrun:
    case FaultKind::kUserSignal:
    case FaultKind::kFailEverywhere:
    case FaultKind::kKillAgent:
      return;
  }
}

void SimulatedJob::FailEverywhere() {
  for (const auto& [number, host] : hosts_) {
    clock_.After(Seconds(Draw(0, 1)), [host = host.get()] { host->FailRank(); });
  }
}

void SimulatedJob::PauseDsrun(Time length) {
  if (std::exchange(paused_, true)) return;
  clock_.After(length, [this] {
    paused_ = false;
    for (auto& what : std::exchange(waiting_, {})) AtDsrun(std::move(what));
  });
}

void SimulatedJob::SendUserSignal() {
  ++user_signals_;
  AtDsrun([this] {
    if (machine_->ended()) return;
    const cli::StopStep step = stop_->OnSignal(SIGINT);
    if (step == cli::StopStep::kCancelStart || step == cli::StopStep::kKillRanks) {
      starts_cancelled_ = true;
      for (auto& [number, link] : links_) {
        for (const auto& call : link.calls) {
          if (!call->is_start) continue;
          clock_.After(Time(0), [this, call] { Finish(call, CancelledError("not wanted")); });
        }
      }
    }
    Feed(cli::UserSignal{SIGINT});
  });
}

Time SimulatedJob::DrawDelay(const Link& link) {
  if (clock_.now() < link.slow_until) {
    return Seconds(Draw(0, scenario_.lease_seconds));
  }
  return Seconds(Draw(0.0001, 0.05));
}

void SimulatedJob::SendDown(int number, bool may_come_twice, const std::function<void()>& arrive) {
  const Link& link = links_[number];
  const bool blocked = clock_.now() < link.blocked_down_until;
  if (blocked && Flip(kLostInPartition)) return;
  const Time leaves = blocked ? link.blocked_down_until : clock_.now();
  clock_.At(leaves + DrawDelay(link), arrive);
  if (may_come_twice && Flip(kDuplicated)) clock_.At(leaves + DrawDelay(link), arrive);
}

void SimulatedJob::SendUp(int number, std::function<void()> arrive) {
  const Link& link = links_[number];
  const bool blocked = clock_.now() < link.blocked_up_until;
  if (blocked && Flip(kLostInPartition)) return;
  const Time leaves = blocked ? link.blocked_up_until : clock_.now();
  clock_.At(leaves + DrawDelay(link), std::move(arrive));
}

void SimulatedJob::Call(int number, Time timeout, bool is_start, std::function<Status()> serve,
                        std::function<void(const Status&)> done) {
  const auto call = std::make_shared<PendingCall>(PendingCall{std::move(done), is_start});
  Link& link = links_[number];
  if (link.abandoned || (is_start && starts_cancelled_)) {
    return clock_.After(Time(0), [this, call] { Finish(call, CancelledError("not wanted")); });
  }
  std::erase_if(link.calls, [](const auto& each) { return !each->done; });
  link.calls.push_back(call);
  clock_.After(timeout, [this, call] { Finish(call, DeadlineExceededError("no answer")); });
  SimulatedHost* const host = hosts_[number].get();
  // What starts something is not sent again by anybody, nor is it in doubt without a fault.
  if (!is_start && Flip(kReset)) {
    SendUp(number, [this, call] { Finish(call, UnavailableError("connection reset")); });
    if (Flip(0.5)) return;  // it was the request that got lost, and not the answer
  }
  SendDown(number, !is_start, [this, number, host, call, serve = std::move(serve)] {
    if (!host->has_daemon()) {
      return SendUp(number, [this, call] { Finish(call, UnavailableError("refused")); });
    }
    host->Deliver([this, number, call, serve] {
      const Status status = serve();
      SendUp(number, [this, call, status] { Finish(call, status); });
    });
  });
}

void SimulatedJob::Finish(const std::shared_ptr<PendingCall>& call, const Status& status) {
  AtDsrun([call, status] {
    const auto done = std::exchange(call->done, nullptr);
    if (done) done(status);
  });
}

void SimulatedJob::Watch(int number, int generation) {
  Link& link = links_[number];
  link.watched = generation;
  link.broken = link.abandoned;
  link.sent = link.seen = 0;
  if (link.abandoned) return EndStream(number, CancelledError("given up"));
  Pump(number);
}

// What is new is on its way, in order, or the stream breaks.
void SimulatedJob::Pump(int number) {
  Link& link = links_[number];
  if (link.watched < 0 || link.broken) return;
  SimulatedHost* const host = hosts_[number].get();
  const auto& log = host->log(link.watched);
  for (; link.sent < log.size() && clock_.now() >= link.blocked_up_until; ++link.sent) {
    const Time behind = clock_.now() < link.flooded_until ? Seconds(Draw(0, 2)) : Time(0);
    link.last_arrival = std::max(link.last_arrival, clock_.now() + DrawDelay(link) + behind);
    const auto arrive = [this, number, generation = link.watched, index = link.sent,
                         event = log[link.sent]] {
      AtDsrun([=, this] {
        Link& to = links_[number];
        if (to.watched != generation || index != to.seen) return;
        ++to.seen;
        table_->OnEvent(number, clock_.now());
        if (event.has_rank_exited()) RecordExit(number, generation, event.rank_exited());
        auto batch = std::make_shared<v1::EventBatch>();
        *batch->add_events() = event;
        Feed(cli::HostEvents{number, generation, std::move(batch)});
        if (event.has_generation_ended()) EndStream(number, OkStatus());
      });
    };
    clock_.At(link.last_arrival, arrive);
  }
  if (link.sent == log.size() && host->has_daemon()) return;
  link.broken = true;
  clock_.At(link.last_arrival + kReconnectAfter, [this, number] { Reconnect(number); });
}

void SimulatedJob::Reconnect(int number) {
  Link& link = links_[number];
  if (link.watched < 0 || !link.broken) return;
  const Time open = std::max(link.blocked_up_until, link.blocked_down_until);
  if (clock_.now() < open) return clock_.At(open, [this, number] { Reconnect(number); });
  if (!hosts_[number]->has_daemon()) {
    return AtDsrun([this, number, generation = link.watched] {
      if (links_[number].watched == generation) EndStream(number, UnavailableError("refused"));
    });
  }
  link.broken = false;
  link.sent = link.seen;
  link.last_arrival = clock_.now();
  Pump(number);
}

void SimulatedJob::EndStream(int number, const Status& status) {
  const int generation = std::exchange(links_[number].watched, -1);
  Feed(cli::StreamEnd{number, generation, status});
}

}  // namespace ds::sim
