#include "cli/agent/job_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(bool known, const T& value) {
  return known ? Json(value) : Json(nullptr);
}

}  // namespace

JobStatus::JobStatus(const JobPlan& plan)
    : job_id_(plan.job_id),
      run_directory_(plan.run_directory.string()),
      total_steps_(plan.purpose.total_steps),
      generation_(plan.purpose.first_generation),
      progress_(plan.purpose.total_steps) {
  for (const JobHost& host : plan.world.hosts) hosts_.push_back(host.host);
  for (const PlannedRank& rank : plan.world.ranks) {
    ranks_.push_back({.host = plan.world.host_of(rank).host});
  }
}

JobStatus::Rank* JobStatus::Find(std::uint32_t rank) {
  return rank < ranks_.size() ? &ranks_[rank] : nullptr;
}

void JobStatus::BeginGeneration(int generation) {
  generation_ = generation;
  for (Rank& rank : ranks_) rank = {.host = rank.host};
}

void JobStatus::OnEvent(const HostEvent& event, std::chrono::nanoseconds now) {
  progress_.OnEvent(event.event, now);
  if (event.generation > generation_) BeginGeneration(event.generation);
  if (event.event.has_rank_started()) {
    Rank* const rank = Find(event.event.rank_started().rank());
    if (rank == nullptr) return;
    *rank = {.host = event.host, .pid = static_cast<int>(event.event.rank_started().pid())};
  } else if (event.event.has_rank_exited()) {
    Rank* const rank = Find(event.event.rank_exited().rank());
    if (rank == nullptr) return;
    rank->exited = true;
    rank->exit_code = event.event.rank_exited().exit_code();
    rank->signal = event.event.rank_exited().signal();
  } else if (event.event.has_heartbeat()) {
    for (const v1::RankVital& vital : event.event.heartbeat().ranks()) {
      if (Rank* const rank = Find(vital.rank())) rank->memory_bytes = vital.rss_bytes();
    }
  } else if (event.event.rank_report().has_checkpoint()) {
    checkpoint_ = event.event.rank_report().checkpoint().path();
  }
}

Json JobStatus::ToJson() const {
  const bool any_started =
      std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid != 0; });
  const char* state = outcome_.has_value()       ? "ended"
                      : stopping_                ? "stopping"
                      : any_started || launched_ ? "running"
                                                 : "starting";
  Json json = {{"job", job_id_},
               {"run_directory", run_directory_},
               {"state", state},
               {"generation", generation_},
               {"world_size", ranks_.size()},
               {"step", OrNull(progress_.step().has_value(), progress_.step().value_or(0))},
               {"total_steps", OrNull(total_steps_ > 0, total_steps_)},
               {"progress", progress_.Line()},
               {"checkpoint", OrNull(!checkpoint_.empty(), checkpoint_)},
               {"hosts", hosts_},
               {"ranks", Json::array()}};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    json["ranks"].push_back({{"rank", i},
                             {"host", rank.host},
                             {"state", rank.exited     ? "exited"
                                       : rank.pid != 0 ? "running"
                                                       : "planned"},
                             {"pid", OrNull(rank.pid != 0, rank.pid)},
                             {"exit_code", OrNull(rank.exited && rank.signal == 0, rank.exit_code)},
                             {"signal", OrNull(rank.exited && rank.signal != 0, rank.signal)},
                             {"memory_bytes", OrNull(rank.memory_bytes != 0, rank.memory_bytes)}});
  }
  const bool failed = outcome_.has_value() && !outcome_->ok();
  json["verdict"] = failed ? cli::ToJson(outcome_->failure()) : Json(nullptr);
  return json;
}

}  // namespace ds::cli
