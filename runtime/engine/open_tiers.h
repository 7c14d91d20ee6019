#pragma once

// OpenTiers: offload_param and offload_optimizer of a config, as tiers for ZeRO's stores.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/config/ds_config.h"
#include "runtime/engine/engine.h"
#include "runtime/offload/file_tier.h"
#include "runtime/zero/plan/tiers.h"

namespace ds::engine {

// Opens this rank's files, which come into `files` and outlive what rests in them, and says in
// notices what rests where. All ranks return the same status. Requires the options' world and
// ledger. Collective.
StatusOr<zero::Tiers> OpenTiers(const config::DsConfig& config, const EngineOptions& options,
                                std::vector<std::unique_ptr<offload::FileTier>>* files);

}  // namespace ds::engine
