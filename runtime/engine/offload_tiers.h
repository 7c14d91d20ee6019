#pragma once

// OpenTiers translates offload_param and offload_optimizer of a config to tiers for ZeRO's stores.
// OpenKeeper opens the storage of the tensors that chunked attention saves.

#include <memory>
#include <vector>

#include "runtime/autograd/keeper.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/engine/engine.h"
#include "runtime/offload/file_tier.h"
#include "runtime/plan/zero/tiers.h"

namespace ds::engine {

// Opens this rank's files and appends them to `files`, which must outlive the tensors stored in
// them. Reports through options.notify where tensors are stored. All ranks return the same status.
// Requires options.world and options.ledger. Collective.
StatusOr<zero::Tiers> OpenTiers(const config::DsConfig& config, const EngineOptions& options,
                                std::vector<std::unique_ptr<offload::FileTier>>* files);

// Makes the keeper for the tensors that chunked attention saves (EngineOptions::sp_offload): on
// the device, in pinned host memory, or in a file of this rank in that folder. Reports through
// options.notify where they are stored. All ranks return the same status. Collective.
StatusOr<activation::Keeper> OpenKeeper(const config::DsConfig& config,
                                        const EngineOptions& options,
                                        std::vector<std::unique_ptr<offload::FileTier>>* files);

}  // namespace ds::engine
