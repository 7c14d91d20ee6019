#pragma once

// Tiers: where stores keep their bytes while no lease is held, and how the bytes move, as a config
// sets it.

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/config/ds_config.h"

namespace ds::offload {
class FileTier;
}

namespace ds::zero {

class UpdateThread;

enum class StorageTier {
  kHere,  // where the rank computes
  kHost,  // in host memory, pinned if the device is not the CPU
  kFile,
};

struct Tiers {
  // The location of this rank's shards of the parameters and of reduced gradients, of the masters
  // and of the optimizer's state. Unsharded state stays where the rank computes.
  StorageTier parameters = StorageTier::kHere;
  StorageTier gradients = StorageTier::kHere;
  StorageTier optimizer = StorageTier::kHere;

  // For StorageTier::kFile; not owned.
  offload::FileTier* parameter_files = nullptr;
  offload::FileTier* optimizer_files = nullptr;  // of gradients, too
  std::int64_t smallest_bytes = 1;               // smaller stores stay where the rank computes
  // The rank computes on a device that cannot access the host's file buffers. A lease of a store in
  // a file is a copy, written back after the lease if the lease may have changed it.
  bool copies_from_files = false;
  // The first units keep up to this many bytes of their shards in memory (resident_parameters).
  std::int64_t resident_parameter_bytes = 0;
  StorageTier resident_parameters = StorageTier::kHere;
  // At most this many bytes wait to be written, per kind of files, and as many stay allocated for
  // the next transfer.
  std::int64_t waiting_bytes = 0;

  // At least this share of the optimizer's elements, with their reduced gradients, is stored in the
  // tiers above. The state of the first buckets stays where the rank computes.
  double optimizer_share = 1.0;

  // Peak bytes that the device holds of copies in transit to the host.
  std::int64_t leaving_bytes = 0;

  // The fields below set how the optimizer steps through state in files or on the host.
  std::int64_t most_elements = std::numeric_limits<std::int64_t>::max();  // in one sub-group
  bool reads_ahead = false;    // reads the next sub-group during the update of this one
  bool writes_behind = false;  // writes this sub-group during the update of the next one

  // Buckets are updated in the step's last backward pass, each after the reduction of its
  // gradients.
  bool updates_in_backward = false;
  // Such an update may have to be rolled back: clipping or skipping is known only with the norm. A
  // copy of the previous values is kept.
  bool rolls_back = false;
  // Each such update overlaps the backward of the next unit, on a thread of its own. It ends at the
  // latest with that backward, or with the pass.
  bool overlaps_update = false;

  // Runs updates that overlap the model's computation, on reserved cores; not owned. Null: no cores
  // are reserved.
  UpdateThread* update_thread = nullptr;
};

// Derives the tiers from offload_param and offload_optimizer of a config. The caller adds the
// files, and the thread that overlaps_update requires. On CPU ranks the host is where they compute.
Tiers PlanTiers(const config::DsConfig& config, bool on_gpu);

// Returns for each trained bucket whether its optimizer state and reduced gradients stay where the
// rank computes. `shard_numels`: the rank's elements of each bucket, in order. A bucket stays if
// the part left for `optimizer_share` (Tiers::optimizer_share) remains large enough.
std::vector<bool> ChooseResident(const std::vector<std::int64_t>& shard_numels,
                                 double optimizer_share);

// Returns the bytes of a rank's parameter shards that may be fetched ahead of their gather
// (ResidencyBudgets::fetch_bytes). `element_size` is in bytes.
std::int64_t ChooseFetchBytes(const config::ZeroConfig& zero, std::int64_t element_size);

}  // namespace ds::zero
