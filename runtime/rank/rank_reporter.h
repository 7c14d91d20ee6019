#pragma once

// RankReporter: reports this rank's progress. Under dsrund the messages go over the rank link
// (base/rank_link.h). Without a link (started by hand), notices, steps and checkpoints go to
// standard output. Errors always go to standard error, too.
//
// A lost daemon is not an error here: the daemon's end kills the rank (PR_SET_PDEATHSIG), and
// messages in between are dropped. A message longer than a line of the link is dropped, too, with a
// warning for the first.
//
// Not thread-safe: only the training thread uses it.

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

// Failure: the reason why a rank is about to end, in words for the user.
struct Failure {
  Status status;
  int exit_code = kExitFailure;
  std::string hint;            // advice; may be empty
  comm::Absence absence = {};  // the missing ranks that caused the failure
};

class RankReporter {
 public:
  // `link` may be null.
  RankReporter(std::unique_ptr<RankLink> link, int rank) : link_(std::move(link)), rank_(rank) {}

  // Returns null if there is no daemon.
  RankLink* link() const { return link_.get(); }

  void ReportHello();
  // `total_steps` is the job's number of steps, 0 while it is unknown.
  void ReportPhase(std::string_view name, std::int64_t total_steps = 0);
  void ReportNotice(std::string_view text);
  // Reports a notice for each key of the job's config that has no effect here (config/idle_keys.h).
  void ReportIdleKeys(const config::TrainJob& job, const config::DsConfig& config,
                      config::RankPlacement placement);
  void ReportBeacon(std::int64_t step, const nlohmann::ordered_json& memory);
  void ReportStep(const nlohmann::ordered_json& metrics);
  void ReportCheckpoint(std::int64_t step, const std::string& path);
  void ReportError(const Failure& failure);
  void ReportEnd(const nlohmann::ordered_json& summary);

 private:
  void Send(RankMessageKind kind, const nlohmann::ordered_json& body);

  std::unique_ptr<RankLink> link_;
  int rank_;
  bool has_warned_ = false;  // of a message that is too long
};

}  // namespace ds::rank
