#pragma once

// EngineComponents owns the components of an Engine, which BuildEngine creates. The classes that
// implement the engine's API take from it the components that they use.

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/ds_config.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/block_runner.h"
#include "runtime/engine/rank_topology.h"
#include "runtime/engine/reserved_cores.h"
#include "runtime/engine/step_context.h"
#include "runtime/engine/step_reporter.h"
#include "runtime/engine/trained_model.h"
#include "runtime/offload/file_tier.h"

namespace ds::engine {

// Resources that the engine creates if its caller provides none, and resources that must outlive
// all components.
struct EngineResources {
  std::unique_ptr<comm::Communicator> world;
  std::unique_ptr<device::MemoryLedger> ledger;
  // Storage of offloaded tensors (OpenTiers), which must be destroyed before the files.
  std::vector<std::unique_ptr<offload::FileTier>> file_tiers;
  device::LedgerEntry shared_memory;  // of the communicators
  ReservedCores cores;
};

struct EngineComponents {
  EngineResources resources;  // declared first, because the other members refer to it
  config::DsConfig config;    // as given; StepContext::batch has the current batch sizes
  RankTopology topology;
  TrainedModel model;
  BlockRunner runner;
  StepContext step;
  StepReporter reporter;
};

}  // namespace ds::engine
