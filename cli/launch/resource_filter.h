#pragma once

// Chooses the slots of the pool that a job takes: --include, --exclude, --num_nodes, --num_gpus.
//
//     FILTER    = NODE {"@" NODE}
//     NODE      = HOST [":" SLOTS {"," SLOTS}]        a bare host means all its slots
//     SLOTS     = number | first "-" last
//
// The result is in pool order whatever the filter's order; a repeated host adds up; a host named
// both bare and with slots keeps the slots. A name that is a whole host of the pool is that host
// even when it holds ':' (IPv6). What selects nothing, or asks for more than there is, is an error.
//
// Pure; safe from any thread.

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// The slots of one host. `devices` names each slot's device as the visible-devices variable wants
// it ("0", a GPU's UUID); empty when the ranks use none.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
  std::vector<std::string> devices;

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

struct ResourceRequest {
  std::string include;
  std::string exclude;
  std::optional<int> num_nodes;
  std::optional<int> num_gpus;
};

// Requires: the hosts of `pool` differ; devices is empty or as long as slots.
StatusOr<std::vector<HostSlots>> SelectSlots(const std::vector<HostSlots>& pool,
                                             const ResourceRequest& request);

}  // namespace ds::cli
