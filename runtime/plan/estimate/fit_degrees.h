#pragma once

// FitDegrees: proposes how to split a training job (ZeRO stage, recomputation, and tensor,
// sequence, expert and pipeline ranks) for a model, hosts and a memory limit per rank. Based on the
// predicted memory of ranks (predict_memory.h). Pure. Thread-safe.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::plan {

struct FitQuestion {
  config::DsConfig config;  // for precision and optimizer; its stage, batch and degrees are ignored
  engine::JobShape job;     // model, length of samples, number of ranks
  std::int64_t capacity = 0;  // bytes available to a rank, in the tier where it computes
  // Tensor ranks x sequence ranks must divide it, since they communicate in every layer.
  int ranks_of_a_host = 1;
};

struct Fit {
  int zero = 0;
  bool recomputes = false;  // full layers
  int tensor = 1, sequence = 1, pipeline = 1, expert = 1;
  models::SequenceKind kind = models::SequenceKind::kUlysses;  // if there are sequence ranks
  std::int64_t bytes = 0;        // of a rank, with a micro-batch of one
  std::int64_t micro_batch = 0;  // the largest that fits

  // Returns "--tp 2 --recompute full", or "" if no flag is needed.
  std::string Flags() const;
};

// OK if the memory of such a job's ranks can be predicted, at least for some splits. The error
// names the unsupported feature, such as a model's experts.
Status CheckFitIsKnown(const FitQuestion& question);

// Returns the splits that fit, in the order in which to try them: the smallest of each kind, each
// kind costlier than the one before. First ZeRO alone, by stage, then with recomputation; then
// sequence ranks, in a ring if they cannot share the heads; then expert ranks; then tensor ranks;
// then pipeline stages, alone and with tensor ranks. Empty: nothing fits. Requires CheckFitIsKnown.
std::vector<Fit> FitDegrees(const FitQuestion& question);

std::string ToText(const std::vector<Fit>& fits, const FitQuestion& question);
// [{"zero_stage","tp","sp","sp_kind","pp","ep","recompute","bytes","micro_batch","flags"}]
nlohmann::ordered_json ToJson(const std::vector<Fit>& fits);

}  // namespace ds::plan
