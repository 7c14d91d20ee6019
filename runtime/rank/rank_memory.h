#pragma once

// RankMemory: a rank's memory ledger and meter, its predicted memory, and a comparison of
// prediction and measurement.
//
// Not thread-safe, except for the ledger.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/rank_identity.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/device/activation_meter.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/plan/memory/job_memory.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/plan/model/decoder_spec.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::rank {

// Advice to the user after a rank has run out of memory.
inline constexpr char kMemoryHint[] =
    "a smaller micro-batch, --recompute full, a higher ZeRO stage or more ranks need less memory "
    "on each; `dsrun estimate --deepspeed_config` shows settings that fit";

class RankMemory {
 public:
  // Starts to count the device's tensors. Call it before the first tensor exists.
  void Open(c10::Device device);
  // Sets the part of the samples that the planned steps process; by default all of each sample.
  void SetEfficiency(config::DataEfficiency efficiency) { efficiency_ = std::move(efficiency); }
  // Predicts this rank's memory with the code of `dsrun estimate`. Call Open first. Does nothing if
  // the memory of such a model is not known.
  void Plan(const models::DecoderSpec& model, const config::DsConfig& config,
            const config::TrainJob& job, const comm::RankIdentity& identity,
            const topology::Mesh& mesh);

  device::MemoryLedger& ledger() { return ledger_; }
  device::ActivationMeter* meter() { return meter_.get(); }

  // Returns the "memory" object of metrics.jsonl.
  nlohmann::ordered_json Report() const;
  // Returns, on the first call, a line for the user: "memory of a rank's tensors: planned ...,
  // measured ...". Adds the plan, which does not change, to this report alone, as "planned".
  // Returns nothing without a plan, after the first call, and on ranks with the same contents as an
  // earlier rank of their stage. With expert parallelism the reporting rank is the one with the
  // experts that received the most tokens in `expert_routes` (from StepResult). It adds the
  // prediction for that load.
  std::optional<std::string> ComparePlan(
      const std::vector<std::vector<std::int64_t>>& expert_routes, nlohmann::ordered_json* report);

 private:
  // Returns the load of this rank's experts relative to an even share, by layer. Returns an empty
  // list if another rank reports: the ranks of the stage's first expert group report for all
  // others.
  std::vector<double> FindLoads(const std::vector<std::vector<std::int64_t>>& expert_routes) const;

  device::MemoryLedger ledger_;
  std::unique_ptr<device::ActivationMeter> meter_;
  config::DataEfficiency efficiency_;
  struct Job {
    config::DsConfig config;
    engine::JobShape shape;
  };
  std::optional<Job> job_;  // the planned job
  std::optional<zero::StepMemory> planned_;
  bool on_gpu_ = false, is_first_of_stage_ = false;
  // Index of the rank's experts in the group of the stage's first rank; none: the rank is in
  // another group.
  std::optional<int> expert_part_;
  std::string stage_;  // " on stage 1" in a pipeline
  bool has_compared_ = false;
};

}  // namespace ds::rank
