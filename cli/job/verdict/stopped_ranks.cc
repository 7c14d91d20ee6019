#include "cli/job/verdict/stopped_ranks.h"

#include <algorithm>

namespace ds::cli {

std::optional<StalledRank> StoppedRanks::OnEvent(const std::string& host, const v1::Event& event) {
  if (event.has_rank_started()) {
    const v1::RankStarted& started = event.rank_started();
    ranks_[static_cast<int>(started.rank())] = {.pid = static_cast<int>(started.pid())};
  } else if (event.has_rank_exited()) {
    ranks_.erase(static_cast<int>(event.rank_exited().rank()));
  }
  const std::int64_t now = event.heartbeat().monotonic_nanos();
  std::optional<StalledRank> stalled;
  for (const v1::RankVital& vital : event.heartbeat().ranks()) {
    const auto found = ranks_.find(static_cast<int>(vital.rank()));
    if (found == ranks_.end()) continue;
    Rank& rank = found->second;
    rank.stopped = vital.stopped();
    if (!rank.stopped) rank.stopped_at.reset();
    if (rank.stopped && !rank.stopped_at.has_value()) rank.stopped_at = now;
    if (!rank.stopped_at.has_value() || stalled.has_value()) continue;
    const std::chrono::nanoseconds since(now - *rank.stopped_at);
    if (since < timeout_) continue;
    stalled = {.host = host, .rank = found->first, .pid = rank.pid, .since = since};
  }
  if (IsAnyRunning()) return stalled;
  // All ranks are stopped, so none waits for another. If they are continued one after the other,
  // the first must not make the others look stalled.
  for (auto& [number, rank] : ranks_) rank.stopped_at.reset();
  return std::nullopt;
}

bool StoppedRanks::IsAnyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return !rank.second.stopped; });
}

}  // namespace ds::cli
