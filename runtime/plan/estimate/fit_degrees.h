#pragma once

// FitDegrees proposes how to cut a training job: ZeRO's stage, recomputing, and tensor, sequence
// and pipeline ranks, for a model, hosts, and the memory that a rank may have. By what ranks will
// hold (predict_memory.h). Pure; safe from any thread.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::plan {

struct FitQuestion {
  config::DsConfig config;  // precision and optimizer; its stage, batch and degrees do not count
  engine::JobShape job;     // model, length of samples, and how many ranks there are
  std::int64_t room = 0;    // bytes of a rank, in the tier where it computes
  // Tensor and sequence ranks, which talk in every layer, have to divide it.
  int ranks_of_a_host = 1;
};

struct Fit {
  int zero = 0;
  bool recomputes = false;  // whole layers
  int tensor = 1, sequence = 1, pipeline = 1, expert = 1;
  models::SequenceKind kind = models::SequenceKind::kUlysses;  // where there are sequence ranks
  std::int64_t bytes = 0;        // of a rank, with a micro-batch of one
  std::int64_t micro_batch = 0;  // the largest that fits

  // "--tp 2 --recompute full"; empty where no flag is needed.
  std::string Flags() const;
};

// OK where it is known what ranks of such a job hold, if not all of its cuts. The error names what
// is not, as the experts of a model.
Status CheckFitIsKnown(const FitQuestion& question);

// Those that fit, in the order in which they should be tried: the least of each way of cutting that
// the one before does without. First nothing but ZeRO, by its stages, and by recomputing; then
// sequence ranks, in a ring where the heads cannot be shared out; then ranks that have experts
// between them; then tensor ranks; then stages, by themselves and of tensor ranks. Empty: nothing
// fits. Requires CheckFitIsKnown.
std::vector<Fit> FitDegrees(const FitQuestion& question);

std::string ToText(const std::vector<Fit>& fits, const FitQuestion& question);
// [{"zero_stage","tp","sp","sp_kind","pp","ep","recompute","bytes","micro_batch","flags"}]
nlohmann::ordered_json ToJson(const std::vector<Fit>& fits);

}  // namespace ds::plan
