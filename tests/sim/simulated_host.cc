#include "tests/sim/simulated_host.h"

#include <csignal>
#include <utility>

namespace ds::sim {

namespace {

using Next = daemon::DaemonDuty::Next;
using Step = daemon::StopLadder::Step;

}  // namespace

SimulatedHost::SimulatedHost(EventClock* clock, Options options)
    : clock_(clock), options_(std::move(options)), lease_(options_.lease, boot_time()) {
  SetTimers();
}

void SimulatedHost::Deliver(std::function<void()> work) {
  if (!alive_) return;
  if (paused_) return waiting_.push_back(std::move(work));
  work();
}

void SimulatedHost::ResumeDaemon() {
  paused_ = false;
  if (!alive_) return;
  for (auto& work : std::exchange(waiting_, {})) Deliver(std::move(work));
  Deliver([this] { OnTime(); });
}

// Its own, and the kernel's, which does not wait for a daemon that has been stopped.
void SimulatedHost::SetTimers() {
  if (!alive_) return;
  const auto at = [this](Time boot, std::function<void()> what) {
    clock_->At(boot - options_.boot_offset, std::move(what));
  };
  if (!options_.mistakes.no_death_timer) {
    at(lease_.death(), [this] {
      if (alive_ && boot_time() >= lease_.death()) KillDaemon();
    });
  }
  const auto wake = [this] { Deliver([this] { OnTime(); }); };
  at(lease_.end(), wake);
  if (const auto next = ladder_.next()) at(*next, wake);
}

void SimulatedHost::OnTime() {
  if (boot_time() >= lease_.end() && !std::exchange(lease_over_, true)) {
    Finish(v1::STOP_LEASE_EXPIRED);
  }
  if (!alive_) return;
  const Step step = ladder_.OnTime(boot_time());
  if (step == Step::kKill) KillRanks();
  if (step == Step::kGiveUp) GiveUp();
  if (step != Step::kNothing) SetTimers();
}

void SimulatedHost::Append(int generation, v1::Event event) {
  event.set_sequence(logs_[generation].size() + 1);
  event.set_unix_nanos(options_.wall_clock());
  logs_[generation].push_back(std::move(event));
  options_.on_change();
}

Status SimulatedHost::Launch(const v1::LaunchRequest& request) {
  const int generation = static_cast<int>(request.generation());
  DS_RETURN_IF_ERROR(duty_.CheckLaunch(request.generation()));
  options_.on_launch(generation);
  duty_.OnLaunched(request.generation(), Seconds(request.grace_seconds()));
  lease_.SetGrace(Seconds(request.grace_seconds()));
  ladder_ = {};
  killed_ = false;
  unended_.clear();
  generation_ = generation;
  for (const v1::RankSpec& spec : request.ranks()) {
    const int number = static_cast<int>(spec.rank());
    ranks_.push_back({number, generation, options_.live(number, generation)});
    SimulatedRank* const rank = &ranks_.back();
    ++running_;
    v1::Event event;
    event.mutable_rank_started()->set_rank(spec.rank());
    Append(generation, std::move(event));
    clock_->After(rank->life.works_for, [this, rank] {
      if (rank->alive) rank->ended_by_itself = true;
      End(rank, rank->life.exit_code, 0);
    });
  }
  SetTimers();
  return OkStatus();
}

Status SimulatedHost::Stop(const v1::StopRequest& request) {
  if (static_cast<int>(request.generation()) > generation_) return NotFoundError("not launched");
  const bool current = static_cast<int>(request.generation()) == generation_;
  if (!current || (running_ == 0 && !ladder_.in_grace())) return OkStatus();
  const Time grace = Seconds(request.grace_seconds());
  if (ladder_.Stop(grace, v1::STOP_REQUESTED, boot_time()) == Step::kTerminate) Terminate();
  SetTimers();
  return OkStatus();
}

Status SimulatedHost::Renew(std::uint64_t answered, bool release) {
  const Time from = options_.mistakes.lease_from_arrival
                        ? boot_time()
                        : Time(static_cast<std::int64_t>(answered));
  DS_RETURN_IF_ERROR(lease_.OnRenewal(from, boot_time()));
  SetTimers();
  if (release) Finish(v1::STOP_REQUESTED);
  return OkStatus();
}

void SimulatedHost::Finish(v1::StopCause cause) {
  const Next next = duty_.Finish();
  if (next == Next::kQuit) return Quit();
  if (next != Next::kStopRanks || (running_ == 0 && !ladder_.in_grace())) return;
  if (ladder_.Stop(duty_.grace(cause), cause, boot_time()) == Step::kTerminate) Terminate();
  SetTimers();
}

void SimulatedHost::Terminate() {
  for (SimulatedRank& rank : ranks_) {
    if (!rank.alive || rank.generation != generation_) continue;
    if (!rank.life.ends_after_sigterm || rank.life.survives_sigkill) continue;
    clock_->After(*rank.life.ends_after_sigterm, [this, &rank] { End(&rank, 0, SIGTERM); });
  }
}

void SimulatedHost::KillRanks() {
  killed_ = true;
  for (SimulatedRank& rank : ranks_) {
    if (rank.generation == generation_ && !rank.life.survives_sigkill) End(&rank, 0, SIGKILL);
  }
  if (running_ == 0 && duty_.ending()) EndGeneration();
}

void SimulatedHost::GiveUp() {
  for (const SimulatedRank& rank : ranks_) {
    if (rank.alive && rank.generation == generation_) {
      unended_.push_back("rank " + std::to_string(rank.number));
    }
  }
  running_ = 0;
  OnAllEnded();
}

void SimulatedHost::End(SimulatedRank* rank, int exit_code, int signal) {
  if (!std::exchange(rank->alive, false)) return;
  rank->exit_code = exit_code;
  rank->signal = signal;
  Deliver([this, rank] { OnRankEnded(*rank); });
}

void SimulatedHost::OnRankEnded(const SimulatedRank& rank) {
  if (rank.generation != generation_ || running_ == 0) return;  // it was given up
  const bool failed = rank.exit_code != 0 || rank.signal != 0;
  const bool killed_by_others = rank.signal == SIGKILL && !killed_;
  v1::Event event;
  event.mutable_rank_exited()->set_rank(static_cast<std::uint32_t>(rank.number));
  event.mutable_rank_exited()->set_exit_code(rank.exit_code);
  event.mutable_rank_exited()->set_signal(rank.signal);
  event.mutable_rank_exited()->set_boot_nanos(static_cast<std::uint64_t>(boot_time().count()));
  event.mutable_rank_exited()->set_stopping(ladder_.cause() != v1::STOP_NONE && !killed_by_others);
  Append(generation_, std::move(event));
  if (failed && ladder_.cause() == v1::STOP_NONE) {
    ladder_.Stop(duty_.grace(v1::STOP_RANK_FAILED), v1::STOP_RANK_FAILED, boot_time());
    Terminate();
    SetTimers();
  }
  if (--running_ == 0) OnAllEnded();
}

void SimulatedHost::OnAllEnded() {
  duty_.OnRanksEnded();
  if (!ladder_.in_grace()) ladder_.AwaitEnd(boot_time());
  EndGeneration();
}

void SimulatedHost::EndGeneration() {
  ladder_.End();
  v1::Event event;
  event.mutable_generation_ended()->set_stop_cause(ladder_.cause());
  for (const std::string& each : unended_) event.mutable_generation_ended()->add_unended(each);
  Append(generation_, std::move(event));
  if (duty_.OnAlone() == Next::kQuit) Quit();
}

void SimulatedHost::Quit() {
  alive_ = false;
  options_.on_change();
}

// Ranks die with it; what they have started is the guardian's, which nobody keeps stopped.
void SimulatedHost::KillDaemon() {
  if (!alive_) return;
  alive_ = false;
  for (SimulatedRank& rank : ranks_) {
    if (!rank.alive || rank.life.survives_sigkill) continue;
    rank.alive = false;
    rank.signal = SIGKILL;
    rank.left_children = true;
    clock_->After(options_.clean_up_after, [&rank] { rank.left_children = false; });
  }
  options_.on_change();
}

void SimulatedHost::FailRank() {
  for (SimulatedRank& rank : ranks_) {
    if (!rank.alive) continue;
    rank.ended_by_itself = true;
    return End(&rank, 70 + rank.number, 0);
  }
}

void SimulatedHost::KillRank() {
  for (SimulatedRank& rank : ranks_) {
    if (rank.alive && !rank.life.survives_sigkill) return End(&rank, 0, SIGKILL);
  }
}

}  // namespace ds::sim
