#pragma once

// PredictMemory: what the ranks of a training job will hold, and what would make it less. By the
// code that the ranks themselves follow (runtime/plan/memory), from a config.json and a ds_config
// that has been checked.
//
// Pure but for ReadJobModel. Threads: plain functions and values.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/saturating.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::plan {

// Describes a model: a folder with a config.json, or that file. The error says what of it cannot be
// predicted.
StatusOr<models::DecoderSpec> ReadJobModel(const std::filesystem::path& model);

// --expert_load takes no more: no job has as many ranks.
inline constexpr double kMostExpertLoad = 1 << 20;

// Measured: pages of the program and its libraries, which the ranks of a host share.
inline constexpr std::int64_t kSharedProgramBytes = std::int64_t{80} << 20;

// Reads what --memory says: "80G" is 80 GiB; M and T likewise, and bytes without a letter.
StatusOr<std::int64_t> ParseMemory(const std::string& text);

struct MemoryPrediction {
  zero::StepMemory step;           // tensors, in the tier where the rank computes
  std::int64_t process_bytes = 0;  // of the host: the program, without what ranks share
  bool on_gpu = false;

  std::int64_t device_bytes() const { return on_gpu ? step.peak.total() : 0; }
  std::int64_t host_bytes() const {
    const zero::AwayMemory& away = step.away;
    return process_bytes + away.host + away.file_buffers + (on_gpu ? 0 : step.peak.total());
  }
  // In the tier that a micro-batch decides.
  std::int64_t bytes() const { return on_gpu ? device_bytes() : host_bytes(); }
};
MemoryPrediction PredictMemory(const config::DsConfig& config, const engine::JobShape& job);

// The largest micro-batch with which bytes() is at most that; 0: none.
std::int64_t LargestMicroBatch(config::DsConfig config, const engine::JobShape& job,
                               std::int64_t bytes);

// "1.20 GiB of parameters, ..., in the backward pass of block 3": what a rank will hold of its
// host's memory, for errors.
std::string ListHostParts(const MemoryPrediction& rank);

// A change of the job, and what bytes() would be with it.
struct Change {
  std::string what;  // "--recompute full"
  std::int64_t bytes = 0;
};
// Those that make it less, the best first: higher stages, recomputing, a micro-batch of one.
std::vector<Change> ListChanges(const config::DsConfig& config, const engine::JobShape& job);

// Says in a sentence what of that fits in so many bytes of the host for each rank: for errors.
std::string AdviseOnMemory(const config::DsConfig& config, const engine::JobShape& job,
                           std::int64_t bytes);

// Says that the ds_config, and no flag, has layers recomputed, and what that makes of the memory of
// activations where `job` is known; or that a flag, `asked` being the job's own choice, overrules
// the ds_config. Nothing where there is nothing to say.
std::optional<std::string> DescribeRecompute(const config::DsConfig& config,
                                             const config::RecomputeChoice& asked,
                                             const engine::JobShape* job);

// This is what `dsrun estimate --deepspeed_config` shows of a prediction: a table, or JSON.

struct Prediction {
  config::DsConfig config;
  engine::JobShape job;
  int hosts = 1;
  int ranks_of_host = 1;  // of the one that has the most
  MemoryPrediction rank;
  std::vector<Change> changes;
  // Says what a rank may have, in the tier where it computes. Absent: nobody has said.
  std::optional<std::int64_t> room;
  std::int64_t largest_micro_batch = 0;  // that fits there
  // This is with all that can come to one rank's experts, where ranks have them between them.
  std::optional<MemoryPrediction> worst_load = {};

  // Counts what the ranks of the host with the most of them will hold there.
  std::int64_t host_bytes() const {
    return kSharedProgramBytes + SaturatingProduct(ranks_of_host, rank.host_bytes());
  }
  bool fits() const { return !room || rank.bytes() <= *room; }
  double most_load() const;  // models::MostExpertLoad of the job
};

// Fills in all that follows from the first four and `room`. Requires CheckMemoryIsKnown.
Prediction MakePrediction(Prediction question);

// "2 x 256 tokens", or of batches by tokens what they may have.
std::string DescribeMicroBatch(const config::BatchConfig& batch, const engine::JobShape& job);

std::string ToText(const Prediction& prediction);
// Sizes are bytes. {"ranks","hosts","micro_batch","device","host","process","peak","when",...};
// where ranks have experts between them "expert_load", "most_expert_load" and
// "rank_at_most_expert_load".
nlohmann::ordered_json ToJson(const Prediction& prediction);

}  // namespace ds::plan
