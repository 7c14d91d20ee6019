#pragma once

// ReserveCores implements offload_optimizer.cpuadam_cores_perc and zenflow.pt_reserved_cores_perc:
// it reserves CPU cores for updates that overlap the computation.

#include <memory>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/device/thread_cores.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/zero/tiers.h"
#include "runtime/zero/optimizer/update_thread.h"

namespace ds::engine {

struct ReservedCores {
  std::unique_ptr<zero::UpdateThread> update_thread;  // null: none are reserved
  std::optional<device::BoundPool> compute_cores;
};

// Reserves cores for updates that overlap the computation. The cores are taken from those that this
// thread may run on, or from this rank's share if ranks of the host share cores. Binds this thread
// and its pool to the remaining cores; `reserved` must be destroyed on this thread and restores the
// binding. Reports the cores, or why none are reserved, through options.notify. All ranks reserve
// cores or none does. Collective.
Status ReserveCores(const config::DsConfig& config, const EngineOptions& options,
                    zero::Tiers* tiers, ReservedCores* reserved);

}  // namespace ds::engine
