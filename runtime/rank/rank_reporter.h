#pragma once

// RankReporter: tells the world what this rank does while it works. Under dsrund the messages go
// over the rank link (base/rank_link.h); started by hand, without one, what a person wants to know
// goes to stdout.
//
// A vanished daemon is not an error here: the daemon's end kills the rank (PR_SET_PDEATHSIG), and a
// rank that outlives it for a moment has nobody to tell.
//
// Threads: one thread, the one that trains.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/exit_codes.h"
#include "runtime/base/rank_link.h"
#include "runtime/comm/shm/group_family.h"
#include "runtime/config/idle_keys.h"
#include "runtime/config/train_job.h"

namespace ds::rank {

// The reason why a rank is about to end, in words for the user.
struct Failure {
  Status status;
  int exit_code = kExitFailure;
  std::string hint;            // what to do; may be empty
  comm::Absence absence = {};  // of those for which it ends
};

class RankReporter {
 public:
  // `link` may be null.
  RankReporter(std::unique_ptr<RankLink> link, int rank) : link_(std::move(link)), rank_(rank) {}

  // Null when nobody listens.
  RankLink* link() const { return link_.get(); }

  void ReportHello();
  // `total_steps` of the job, 0 while it is not known.
  void ReportPhase(std::string_view name, std::int64_t total_steps = 0);
  void ReportNotice(std::string_view text);
  // A notice for each key of the job's config that changes nothing here (config/idle_keys.h).
  void ReportIdleKeys(const config::TrainJob& job, const config::DsConfig& config,
                      config::RankPlaces places);
  void ReportBeacon(std::int64_t step, const nlohmann::ordered_json& memory);
  void ReportStep(const nlohmann::ordered_json& metrics);
  void ReportCheckpoint(std::int64_t step, const std::string& path);
  void ReportError(const Failure& failure);
  void ReportEnd(const nlohmann::ordered_json& summary);

 private:
  void Send(RankMessageKind kind, const nlohmann::ordered_json& body);

  std::unique_ptr<RankLink> link_;
  int rank_;
};

}  // namespace ds::rank
