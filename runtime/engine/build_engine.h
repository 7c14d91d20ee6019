#pragma once

// BuildEngine: what Engine::create does, pass by pass: the world and the ledger, the device, units
// of the model's blocks, the groups of their parameters, buffers, first values, shards, optimizer.

#include <memory>

#include "runtime/engine/engine_parts.h"

namespace ds::engine {

// Builds what Engine::create promises. Collective: all ranks return the same status. What throws on
// one rank (its memory, a function of the user's) ends the world of all of them with its reason
// (Communicator::Abort).
StatusOr<std::unique_ptr<EngineParts>> BuildEngine(std::shared_ptr<BlockList> model,
                                                   const config::DsConfig& config,
                                                   EngineOptions options);

}  // namespace ds::engine
