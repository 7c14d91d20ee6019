#pragma once

// What an Engine holds, for the files that implement it.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/engine.h"
#include "runtime/zero/sharded_model.h"
#include "runtime/zero/sharded_optimizer.h"

namespace ds::engine {

// What has been seen of the step in progress on this rank.
struct StepInProgress {
  std::int64_t micro_batches = 0;
  std::vector<at::Tensor> losses;
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
};

struct Engine::Parts {
  std::shared_ptr<BlockList> model;
  config::DsConfig config;

  // Only when not given by the caller; declared first, for what follows refers to them.
  std::unique_ptr<comm::Communicator> own_world;
  std::unique_ptr<device::MemoryLedger> own_ledger;

  std::unique_ptr<zero::ShardedModel> sharded;
  std::unique_ptr<zero::ShardedOptimizer> optimizer;

  std::int64_t finished_steps = 0;
  std::int64_t applied_steps =
      0;  // finished ones less the skipped: what Adam and the schedule count
  StepInProgress step;
};

}  // namespace ds::engine
