#pragma once

// Tiers: where the bytes of stores lie while nobody has a lease of them, and how they come and go;
// and what a config makes of that.

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/config/ds_config.h"

namespace ds::offload {
class FileTier;
}

namespace ds::zero {

class UpdateThread;

enum class Rest {
  kHere,  // where the rank computes
  kHost,  // in host memory, pinned where the device is not the CPU
  kFile,
};

struct Tiers {
  // This says where what is sharded rests: this rank's shards of the parameters and of reduced
  // gradients, the masters and the optimizer's state. What is not sharded is here.
  Rest parameters = Rest::kHere;
  Rest gradients = Rest::kHere;
  Rest optimizer = Rest::kHere;

  // For Rest::kFile; borrowed.
  offload::FileTier* parameter_files = nullptr;
  offload::FileTier* optimizer_files = nullptr;  // of gradients, too
  std::int64_t smallest_bytes = 1;               // of a store in a file; what is smaller is here
  // The rank computes on a device, which does not see the host's buffers of files: what comes is
  // copied for its lease, and back behind it where that may have changed it.
  bool copies_from_files = false;
  // The first units keep so much of their shards in memory all the same: in the host's.
  std::int64_t kept_parameter_bytes = 0;
  Rest kept_parameters = Rest::kHere;
  // At most so much of memory waits for being written, of each kind of files, and so much is kept
  // for the next transfer.
  std::int64_t waiting_bytes = 0;

  // At least this share of the optimizer's elements rests there, with reduced gradients; what
  // belongs to the first buckets is here.
  double optimizer_share = 1.0;

  // The device holds what leaves for the host until it is there: at most so much.
  std::int64_t leaving_bytes = 0;

  // So the optimizer goes through what rests in files, or on the host.
  std::int64_t most_elements = std::numeric_limits<std::int64_t>::max();  // updated at once
  bool reads_ahead = false;    // the next ones come while these are updated
  bool writes_behind = false;  // these are written while the next ones are

  // Buckets are updated in the step's last backward pass, each once its gradients are reduced.
  bool updates_in_backward = false;
  // Such an update may be the wrong one, as the step is clipped or skipped once its norm is known:
  // what was there before is kept beside it.
  bool takes_back = false;
  // Each goes on beside the backward of the next one, on a thread of its own, and has ended when
  // that has, or the pass.
  bool updates_beside = false;

  // Has cores for itself, for what updates beside the model's computation; borrowed. Null: none are
  // reserved.
  UpdateThread* update_thread = nullptr;
};

// Takes offload_param and offload_optimizer of a config, all but the files and the thread, which
// updates_beside counts on. On CPU ranks the host is where they compute.
Tiers PlanTiers(const config::DsConfig& config, bool on_gpu);

// Tells of trained buckets, in order, by a rank's shares of their elements, whether their
// optimizer's state and reduced gradients are here (Tiers::optimizer_share): each one that leaves
// enough of the rest to be elsewhere.
std::vector<bool> ListKept(const std::vector<std::int64_t>& shard_numels, double optimizer_share);

// Counts what of a rank's shards of parameters, elements of so many bytes, may be read ahead of its
// gather (ResidencyBudgets).
std::int64_t ChooseFetchBytes(const config::ZeroConfig& zero, std::int64_t element_size);

}  // namespace ds::zero
