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
  std::optional<StalledRank> stalled;
  for (const v1::RankVital& vital : event.heartbeat().ranks()) {
    const auto found = ranks_.find(static_cast<int>(vital.rank()));
    if (found == ranks_.end()) continue;
    Rank& rank = found->second;
    if (!vital.stopped()) {
      rank.stopped_at.reset();
      continue;
    }
    if (!rank.stopped_at.has_value()) rank.stopped_at = event.unix_nanos();
    const std::chrono::nanoseconds since(event.unix_nanos() - *rank.stopped_at);
    if (since < patience_ || stalled.has_value()) continue;
    stalled = {.host = host, .rank = found->first, .pid = rank.pid, .since = since};
  }
  return IsAnyRunning() ? stalled : std::nullopt;
}

bool StoppedRanks::IsAnyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return !rank.second.stopped_at.has_value(); });
}

}  // namespace ds::cli
