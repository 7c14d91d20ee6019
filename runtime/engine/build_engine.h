#pragma once

// BuildEngine implements Engine::create as a sequence of passes: world and ledger, device, units of
// the model's blocks, parameter groups, buffers, initial values, shards, optimizer.

#include <memory>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_components.h"
#include "runtime/engine/unit_list.h"
#include "runtime/models/block.h"

namespace ds::engine {

// Builds the engine that Engine::create returns. Collective: all ranks return the same status. An
// exception on one rank (out of memory, a user's function) aborts the world of all ranks with its
// message (Communicator::Abort).
StatusOr<std::unique_ptr<EngineComponents>> BuildEngine(std::shared_ptr<BlockList> model,
                                                        const config::DsConfig& config,
                                                        EngineOptions options);

// The same for a model that the caller runs (UnitPasses).
StatusOr<std::unique_ptr<EngineComponents>> BuildEngine(const UnitList& model,
                                                        const config::DsConfig& config,
                                                        EngineOptions options);

}  // namespace ds::engine
