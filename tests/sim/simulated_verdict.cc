// Which stories there are, and whether a verdict is about what has happened in one.

#include <algorithm>
#include <csignal>

#include "cli/job/verdict/verdict.h"
#include "tests/sim/simulated_job.h"

namespace ds::sim {

Scenario DrawScenario(std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15ULL + 1);
  const auto draw = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  Scenario scenario{.hosts = draw(2, 4),
                    .spares = draw(0, 2),
                    .max_restarts = draw(0, 2),
                    .lease_seconds = static_cast<double>(draw(3, 10)),
                    .grace_seconds = static_cast<double>(draw(0, 12)),
                    .faults = {}};
  const int count = draw(0, 3);
  for (int i = 0; i < count; ++i) {
    Fault fault{.kind = static_cast<FaultKind>(draw(0, 10)),
                .host = draw(0, scenario.hosts - 1),
                .begin = Seconds(draw(0, 40'000) / 1000.0),
                .length = Seconds(draw(100, 30'000) / 1000.0)};
    if (fault.kind >= FaultKind::kPauseDsrun) fault.host = -1;
    if (draw(0, 4) == 0) fault.begin = Time(0);
    scenario.faults.push_back(fault);
  }
  for (int machine = 0; machine < scenario.hosts + scenario.spares; ++machine) {
    if (draw(0, 14) == 0) scenario.down.insert(machine);
    if (draw(0, 14) == 0) scenario.refusing.insert(machine);
  }
  for (int kills = draw(0, 9) - 7; kills > 0; --kills) {
    scenario.faults.push_back(
        {.kind = FaultKind::kKillAgent, .begin = Seconds(draw(0, 40'000) / 1000.0)});
  }
  return scenario;
}

bool SimulatedJob::WasInjected(std::initializer_list<FaultKind> kinds, int host) const {
  return std::any_of(scenario_.faults.begin(), scenario_.faults.end(), [&](const Fault& fault) {
    return fault.host == host && fault.begin <= *ended_ &&
           std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
  });
}

bool SimulatedJob::IsExplained(const cli::Verdict& verdict) const {
  using enum FaultKind;
  const int host = verdict.host.empty() ? -1 : std::stoi(verdict.host.substr(1));
  const SimulatedRank* culprit = nullptr;
  for (const auto& [number, machine] : machines_) {
    if (machine != host) continue;
    for (const SimulatedRank& rank : hosts_.at(number)->ranks()) {
      if (rank.number == verdict.rank && rank.generation == verdict.generation) culprit = &rank;
    }
  }
  switch (verdict.cause) {
    case cli::Cause::kExitCode:
      return culprit != nullptr && culprit->ended_by_itself &&
             culprit->exit_code == verdict.exit_code && verdict.exit_code != 0;
    case cli::Cause::kSignal:
      return culprit != nullptr && culprit->signal == SIGKILL && WasInjected({kKillRank}, host);
    case cli::Cause::kPreflight:
      if (scenario_.down.contains(host) || scenario_.refusing.contains(host)) return true;
      [[fallthrough]];
    case cli::Cause::kHostLost:
    case cli::Cause::kDaemonLost:
      if (WasInjected({kKillDaemon, kPauseDaemon, kPartition, kDeafHost, kMuteHost, kSlowNetwork},
                      host)) {
        return true;
      }
      return WasInjected({kKillAgent}, -1);  // nobody has renewed the lease for a while
    case cli::Cause::kSuspended:
      return WasInjected({kPauseDsrun}, -1);
    case cli::Cause::kInternal:
      return WasInjected({kKillAgent}, -1);
    case cli::Cause::kUserStop:
      return WasInjected({kUserSignal}, -1);
    default:
      return false;
  }
}

void SimulatedJob::ExpectEndOf(int generation) {
  // A call's time, the lease of who does not hear it, its bounded grace, the kernel and the
  // guardian; the job's grace, where it comes at the last moment, and five seconds for who does not
  // die.
  Time longest = Seconds(5 + scenario_.lease_seconds + 7 + scenario_.grace_seconds + 5);
  for (const Fault& fault : scenario_.faults) {
    const bool delays =
        fault.kind == FaultKind::kPauseDsrun || fault.kind == FaultKind::kSlowNetwork;
    if (delays) longest += fault.length;
  }
  clock_.After(longest, [this, generation] {
    for (const auto& [number, host] : hosts_) {
      for (const SimulatedRank& rank : host->ranks()) {
        if (rank.generation != generation || !host->lives(rank) || rank.life.survives_sigkill) {
          continue;
        }
        Violate("generation " + std::to_string(generation) + " is stopped too late: rank " +
                std::to_string(rank.number) + " still lives");
      }
    }
  });
}

void SimulatedJob::RecordExit(int number, int generation, const v1::RankExited& exit) {
  if (exit.stopping() || (exit.exit_code() == 0 && exit.signal() == 0)) return;
  const bool is_known = std::any_of(failed_.begin(), failed_.end(), [&](const FailedRank& rank) {
    return rank.number == static_cast<int>(exit.rank()) && rank.generation == generation;
  });
  if (is_known) return;
  const Time offset = hosts_[number]->boot_time() - clock_.now();
  failed_.push_back({static_cast<int>(exit.rank()), generation,
                     Time(static_cast<std::int64_t>(exit.boot_nanos())) - offset});
}

void SimulatedJob::CheckFirst(const cli::Verdict& verdict) {
  // Twice the error of a clock: half of the longest round trip, and the drift since then.
  constexpr Time kError = std::chrono::milliseconds(250);
  const auto is_about = [&](const FailedRank& rank) {
    return rank.generation == verdict.generation && rank.number == verdict.rank;
  };
  const auto culprit = std::find_if(failed_.begin(), failed_.end(), is_about);
  if (culprit == failed_.end()) return;
  for (const FailedRank& rank : failed_) {
    if (rank.generation != verdict.generation || rank.when + kError >= culprit->when) continue;
    Violate("rank " + std::to_string(rank.number) + " failed earlier than rank " +
            std::to_string(verdict.rank) + ", which is blamed");
  }
}

void SimulatedJob::CheckVerdict() {
  const cli::JobOutcome& outcome = ending_.outcome;
  if (!outcome.ok()) {
    const cli::Verdict& verdict = outcome.failure();
    Trace("verdict: " + verdict.message + "; " + verdict.proof);
    CheckFirst(verdict);
    if (!IsExplained(verdict)) {
      Violate("the verdict is about nothing that has happened: " +
              std::string(cli::CauseName(verdict.cause)) + " on " + verdict.host + ": " +
              verdict.message);
    }
    return;
  }
  for (const auto& [number, host] : hosts_) {
    for (const SimulatedRank& rank : host->ranks()) {
      if (rank.generation + 1 != ending_.generations) continue;
      if (!rank.alive && rank.exit_code == 0 && rank.signal == 0) continue;
      Violate("the job has ended well, and rank " + std::to_string(rank.number) + " has not");
    }
  }
}

}  // namespace ds::sim
