#pragma once

// PredictMemory: predicts the memory of a training job's ranks, and lists changes that would reduce
// it. Uses the code that the ranks themselves follow (runtime/plan/memory), with a config.json and
// a checked ds_config.
//
// Pure except for ReadJobModel. Threads: plain functions and values.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/saturating.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/memory_estimate.h"
#include "runtime/config/model_state.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::plan {

// Reads the description of a model: a folder with a config.json, or that file. The error names the
// feature that cannot be predicted.
StatusOr<models::DecoderSpec> ReadJobModel(const std::filesystem::path& model);

// The limit of --expert_load: no job has more ranks.
inline constexpr double kMostExpertLoad = 1 << 20;

// Measured: pages of the program and its libraries, which the ranks of a host share.
inline constexpr std::int64_t kSharedProgramBytes = std::int64_t{80} << 20;

// Parses the value of --memory: "80G" is 80 GiB; M and T likewise; bytes without a letter.
StatusOr<std::int64_t> ParseMemory(const std::string& text);

struct MemoryPrediction {
  zero::StepMemory step;           // tensors, in the tier where the rank computes
  std::int64_t process_bytes = 0;  // of the host: the program, without the pages that ranks share
  bool on_gpu = false;

  std::int64_t device_bytes() const { return on_gpu ? step.peak.total() : 0; }
  std::int64_t host_bytes() const {
    const zero::OffloadedMemory& offload = step.offload;
    return process_bytes + offload.host + offload.file_buffers + (on_gpu ? 0 : step.peak.total());
  }
  // Returns the bytes in the tier that limits the micro-batch.
  std::int64_t bytes() const { return on_gpu ? device_bytes() : host_bytes(); }
};
MemoryPrediction PredictMemory(const config::DsConfig& config, const engine::JobShape& job);

// Returns the largest micro-batch with a bytes() of at most `bytes`, or 0.
std::int64_t LargestMicroBatch(config::DsConfig config, const engine::JobShape& job,
                               std::int64_t bytes);

// Returns "1.20 GiB of parameters, ..., in the backward pass of block 3": a rank's use of its
// host's memory, for errors.
std::string ListHostParts(const MemoryPrediction& rank);

// A change of the job, and the bytes() with it.
struct Change {
  std::string what;  // "--recompute full"
  std::int64_t bytes = 0;
};
// Lists the changes that reduce bytes(), best first: higher stages, recomputation, a micro-batch of
// one.
std::vector<Change> ListChanges(const config::DsConfig& config, const engine::JobShape& job);

// Returns advice, for errors, on the changes with which each rank fits into `bytes` of the host:
// one change a line.
std::string AdviseOnMemory(const config::DsConfig& config, const engine::JobShape& job,
                           std::int64_t bytes);

// Reports that the ds_config, and no flag, enables recomputation, with its effect on the memory of
// activations if `job` is known. Or reports that a flag (`asked`, the job's own choice) overrides
// the ds_config. Otherwise returns nullopt.
std::optional<std::string> DescribeRecompute(const config::DsConfig& config,
                                             const config::RecomputeChoice& asked,
                                             const engine::JobShape* job);

// The rest of this header is the output of `dsrun estimate --deepspeed_config`: a table, or JSON.

struct Prediction {
  config::DsConfig config;
  engine::JobShape job;
  int hosts = 1;
  int ranks_of_host = 1;  // of the host with the most ranks
  MemoryPrediction rank;
  std::vector<Change> changes;
  // The memory available to a rank, in the tier where it computes. nullopt: not given.
  std::optional<std::int64_t> capacity;
  std::int64_t largest_micro_batch = 0;  // that fits into `capacity`
  // The prediction with the most tokens that one rank's experts can receive, under expert
  // parallelism.
  std::optional<MemoryPrediction> worst_load = {};

  // Returns the host memory of all ranks of the host with the most ranks.
  std::int64_t host_bytes() const {
    return kSharedProgramBytes + SaturatingProduct(ranks_of_host, rank.host_bytes());
  }
  bool fits() const { return !capacity || rank.bytes() <= *capacity; }
  double most_load() const;  // models::MostExpertLoad of the job
};

// Fills in all fields that follow from the first four and `capacity`. Requires CheckMemoryIsKnown.
Prediction MakePrediction(Prediction question);

// Returns "2 x 256 tokens", or the limit in tokens if batches are formed by tokens.
std::string DescribeMicroBatch(const config::BatchConfig& batch, const engine::JobShape& job);

std::string ToText(const Prediction& prediction);
// Sizes are in bytes. {"ranks","hosts","micro_batch","device","host","process","peak","when",...};
// with expert parallelism also "expert_load", "most_expert_load" and "rank_at_most_expert_load".
nlohmann::ordered_json ToJson(const Prediction& prediction);

// Counts the model states that each rank of `dsrun train` holds at ZeRO's four stages, in bf16 with
// Adam, without offloading. Indexed by stage.
std::vector<config::ModelStateBytes> CountRankBytes(const config::MemoryQuestion& question);

// Returns a blank line, a title and a line for each stage.
std::string DrawRankTable(const std::vector<config::ModelStateBytes>& stages);

}  // namespace ds::plan
