#pragma once

// RankMemory: the books of a rank's memory, what it was predicted to hold, and both beside each
// other.
//
// Threads: one at a time, but for the ledger.

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

// Says what a rank that has run out of memory may do.
inline constexpr char kMemoryHint[] =
    "a smaller micro-batch, --recompute full, a higher ZeRO stage or more ranks need less memory "
    "on each; `dsrun estimate --deepspeed_config` shows what fits";

class RankMemory {
 public:
  // Counts the device's tensors from here on. Requires that there is none yet.
  void Open(c10::Device device);
  // Says what of samples the steps to plan see: all of them, if not called.
  void SetEfficiency(config::DataEfficiency efficiency) { efficiency_ = std::move(efficiency); }
  // Predicts this rank, once Open has been called, by the code that `dsrun estimate` asks. Does
  // nothing where it is not known what such a model keeps.
  void Plan(const models::DecoderSpec& model, const config::DsConfig& config,
            const config::TrainJob& job, const comm::RankIdentity& identity,
            const topology::Mesh& mesh);

  device::MemoryLedger& ledger() { return ledger_; }
  device::ActivationMeter* meter() { return meter_.get(); }

  // The "memory" of metrics.jsonl.
  nlohmann::ordered_json Report() const;
  // For the user, once: "memory of a rank's tensors: planned ..., measured ...". What was planned
  // does not change: it goes into this report alone, as "planned". None without a plan, from the
  // second call on, and on ranks that hold what one before them in the same stage holds. Where
  // ranks have experts between them the one speaks whose experts most of `expert_routes`
  // (StepResult's) have gone to, and says what it would have planned for so many.
  std::optional<std::string> ComparePlan(
      const std::vector<std::vector<std::int64_t>>& expert_routes, nlohmann::ordered_json* report);

 private:
  // Finds what came to this rank's experts over an even share, by layer; empty where another rank
  // tells it: those of the stage's first expert group speak for all others.
  std::vector<double> FindLoads(const std::vector<std::vector<std::int64_t>>& expert_routes) const;

  device::MemoryLedger ledger_;
  std::unique_ptr<device::ActivationMeter> meter_;
  config::DataEfficiency efficiency_;
  struct Job {
    config::DsConfig config;
    engine::JobShape shape;
  };
  std::optional<Job> job_;  // that is planned
  std::optional<zero::StepMemory> planned_;
  bool on_gpu_ = false, is_first_of_stage_ = false;
  // The rank's part of the experts, in the group of the stage's first rank; none: in another one.
  std::optional<int> expert_part_;
  std::string stage_;  // " on stage 1", of a pipeline
  bool has_compared_ = false;
};

}  // namespace ds::rank
